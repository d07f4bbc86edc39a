"""`prejit cache`: look at the store and look after it. Nothing here initializes a backend."""

import contextlib
import time
import warnings
from collections.abc import Generator
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from prejit.cli.output import Column, format_age, format_size, is_terminal, print_error, print_json, print_table
from prejit.errors import StoreWarning

if TYPE_CHECKING:
    from prejit.store import CacheEntry, EntryInfo, Store, VerifyReport

SHOWN_DIGITS = 12
_MOST_CANDIDATES = 5
_MOST_VALUE_CHARACTERS = 100

app = typer.Typer(help="Look at the store of compiled entries, and look after it.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print the same as JSON.")]


class Kind(StrEnum):
    """What an entry can hold."""

    TRACE = "trace"
    MODULE = "module"
    EXECUTABLE = "executable"
    PLAN = "plan"
    MANIFEST = "manifest"


def _open_store() -> "Store":
    from prejit.store import get_store

    return get_store()


@contextlib.contextmanager
def _store_to_work_on() -> Generator["Store"]:
    """Give the store for a block, and end with exit code 1 if it could not be used or something in it failed."""
    store = _open_store()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # the same is told below, without "computing goes on"
        yield store
        problem = store.stats().problem
    if problem:
        print_error(problem)
        raise typer.Exit(1)


@app.command()
def stats(*, as_json: AsJson = False) -> None:
    """Show where the store is, how large it is and how often it helped."""
    found = _open_store().stats()
    if as_json:
        shown = ("path", "state", "problem", "entries", "size_bytes", "cap_bytes", "unreadable_entries", "total_hits")
        print_json({name: getattr(found, name) for name in (*shown, "kinds")})
        return
    rows = [
        ("place", str(found.path or "memory only")),
        ("state", found.state),
        ("entries", str(found.entries)),
        ("size", f"{format_size(found.size_bytes)} of {format_size(found.cap_bytes)}"),
        ("hits, all processes", str(found.total_hits)),
    ]
    if found.unreadable_entries:
        rows.append(("damaged or newer", f"{found.unreadable_entries}; see `prejit cache verify`"))
    rows += [
        (f"kind {kind}", f"{of_kind.entries}, {format_size(of_kind.size_bytes)}")
        for kind, of_kind in sorted(found.kinds.items())
    ]
    print_table([Column("store"), Column("")], rows)
    if found.problem:
        print_error(found.problem)


@app.command("ls")
def list_entries(
    *,
    name: Annotated[str, typer.Option(help="Only names that match this; * and ? stand for anything.")] = "*",
    kind: Annotated[Kind | None, typer.Option(help="Only entries of this kind.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """List entries, the most recently used first."""
    entries = [
        info
        for _, info in _open_store().items()
        if fnmatchcase(info.name, name) and (kind is None or info.kind == kind.value)
    ]
    entries.sort(key=lambda info: (-info.last_used, info.digest))
    entries = entries[:limit]
    if as_json:
        print_json(entries)
        return
    now = time.time()
    print_table(
        [
            Column("digest", is_whole=True),
            Column("name"),
            Column("kind"),
            Column("variant"),
            Column("size", is_number=True),
            Column("hits", is_number=True),
            Column("last used", is_number=True),
        ],
        [_entry_row(info, now) for info in entries],
    )


def _entry_row(info: "EntryInfo", now: float) -> tuple[str, ...]:
    return (
        info.digest[:SHOWN_DIGITS],
        info.name,
        info.kind,
        info.variant,
        format_size(info.size_bytes),
        str(info.hits),
        f"{format_age(now - info.last_used)} ago",
    )


@app.command()
def show(
    digest: Annotated[str, typer.Argument(help="The digest of an entry, or how it begins.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one entry: what it holds, and every ingredient of its key."""
    store = _open_store()
    info = store.info(_resolve(store, digest))
    entry = _read_without_counting(store, info.digest)
    if as_json:
        print_json(
            {
                "info": info,
                "ingredients": [
                    {"group": group, "name": name, "value": value} for group, name, value in entry.ingredients
                ],
                "meta": entry.meta,
                "sections": {name: len(data) for name, data in entry.sections.items()},
            }
        )
        return
    now = time.time()
    rows = [
        ("digest", info.digest),
        ("name", info.name),
        ("kind", info.kind),
        ("variant", info.variant or "the function itself"),
        ("size", format_size(info.size_bytes)),
        ("made", f"{format_age(now - info.created)} ago"),
        ("last used", f"{format_age(now - info.last_used)} ago, {info.hits} hits"),
        *((f"section {name}", f"{format_size(len(data))} unpacked") for name, data in entry.sections.items()),
    ]
    print_table([Column("entry"), Column("")], rows)
    print()
    print_table([Column("group"), Column("ingredient"), Column("value")], map(_ingredient_row, entry.ingredients))


def _ingredient_row(ingredient: tuple[str, str, str]) -> tuple[str, ...]:
    group, name, value = ingredient
    if is_terminal() and len(value) > _MOST_VALUE_CHARACTERS:
        value = f"{value[:_MOST_VALUE_CHARACTERS]}... ({len(value)} characters; --json prints all)"
    return group, name, value


def _read_without_counting(store: "Store", digest: str) -> "CacheEntry":
    from prejit.store import Store

    # A person's look is no use of the entry: it must not move in the order of last use.
    entry = Store(store.path, read_only=True).get(digest)
    if entry is None:
        print_error(
            f"showing an entry: expected an intact file, got a damaged one at {digest}\nhint: prejit cache verify"
        )
        raise typer.Exit(1)
    return entry


def _resolve(store: "Store", prefix: str) -> str:
    """Return the one digest that begins so, or end with a message that names the candidates."""
    matching = [digest for digest in store.keys() if digest.startswith(prefix.lower())]  # noqa: SIM118 -- no mapping
    if len(matching) == 1:
        return matching[0]
    expected = f"finding an entry: expected how one digest begins, got {prefix!r}"
    if not matching:
        raise _failure(f"{expected}, as none does", "prejit cache ls")
    names = {digest: info.name for digest, info in store.items()}
    shown = max(SHOWN_DIGITS, len(prefix) + 4)
    lines = [f"  {digest[:shown]} {names.get(digest, '(damaged)')}" for digest in matching[:_MOST_CANDIDATES]]
    if len(matching) > _MOST_CANDIDATES:
        lines.append(f"  ... and {len(matching) - _MOST_CANDIDATES} more")
    raise _failure("\n".join([f"{expected}, as {len(matching)} do", *lines]), "give more digits")


def _failure(message: str, hint: str) -> typer.Exit:
    print_error(f"{message}\nhint: {hint}")
    return typer.Exit(1)


@app.command()
def verify(*, as_json: AsJson = False) -> None:
    """Check every entry's digests; damaged ones are moved to quarantine and compiled again at their next use.

    Ends with exit code 1 if anything was damaged, refused or unreadable, the store itself included.
    """
    with _store_to_work_on() as store:
        report = store.verify()
        if as_json:
            print_json(report)
        else:
            _print_report(report)
    if not report.is_clean:
        raise typer.Exit(1)


def _print_report(report: "VerifyReport") -> None:
    print(f"{report.intact} of {report.checked} entries are intact")
    for what, digests in (
        ("damaged", report.corrupt),
        ("writable by others, so not used", report.refused),
        ("in a newer format, left alone", report.unsupported),
        ("unreadable", report.unreadable),
    ):
        for digest in digests:
            print(f"{digest[:SHOWN_DIGITS]}  {what}")
    if report.quarantined:
        print(f"{report.quarantined} moved to quarantine")


@app.command()
def gc(*, as_json: AsJson = False) -> None:
    """Bring the store under its cap and remove what killed processes left behind.

    Ends with exit code 1 if the store can't be used.
    """
    with _store_to_work_on() as store:
        report = store.gc()
    if as_json:
        print_json(report)
        return
    print(
        f"{len(report.evicted)} entries evicted, {format_size(report.freed_bytes)} freed; "
        f"{report.drafts} drafts, {report.locks} locks, {report.quarantined} quarantined files removed"
    )


@app.command()
def clear(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove every entry on disk; what was removed is compiled again at its next use.

    Ends with exit code 1 if entries are left or the store can't be used.
    """
    path = _open_store().path
    if path is None:
        if as_json:
            print_json({"removed": 0, "left": 0})
        else:
            print("memory only: nothing on disk")
        return
    if not yes:
        if as_json or not is_terminal():
            print_error("clearing the store: expected --yes where nobody can be asked")
            raise typer.Exit(2)
        typer.confirm(f"remove all entries in {path}?", abort=True)
    with _store_to_work_on() as store:
        removed = store.clear("disk")
        left = store.stats().entries
        if as_json:
            print_json({"removed": removed, "left": left})
        else:
            print(f"{removed} entries removed from {path}" + (f", {left} left" if left else ""))
