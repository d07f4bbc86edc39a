"""The `prejit` command: one typer application; each command imports what it needs when it runs."""

import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, TextIO

import typer

from prejit.cli.cache import app as cache_app
from prejit.cli.demo.command import demo
from prejit.cli.doctor import doctor
from prejit.cli.output import print_error
from prejit.errors import PrejitError, PrejitWarning

app = typer.Typer(
    name="prejit",
    help="JAX functions compiled once, kept in a store, and started from there.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.add_typer(cache_app, name="cache")
app.command()(doctor)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        try:
            print(f"prejit {version('prejit')}")
        except PackageNotFoundError:
            print("prejit, not installed")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, PrejitWarning):
        print_error(f"prejit: {message}")
    else:
        _show_warning(message, category, filename, lineno, file, line)


_show_warning = warnings.showwarning


def main() -> None:
    """Run the command line; prejit's own errors and warnings are told by their message, without source lines."""
    warnings.showwarning = _print_warning
    try:
        app()
    except PrejitError as error:
        print_error(f"prejit: {error}")
        raise SystemExit(1) from None
