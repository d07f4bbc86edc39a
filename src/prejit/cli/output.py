"""How commands print: rich tables on a terminal, plain aligned text in a pipe, JSON when asked."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: What stands above it.
        is_number: Whether it is set to the right.
        is_whole: Whether it is never folded, so that it can be copied.
    """

    title: str
    is_number: bool = False
    is_whole: bool = False


def is_terminal() -> bool:
    """Tell whether what is printed goes to a person's terminal."""
    return sys.stdout.isatty()


def print_json(data: object) -> None:
    """Print data as indented JSON.

    Args:
        data: Plain values, dataclasses, paths; whatever msgspec encodes.
    """
    encoded = msgspec.json.encode(data, enc_hook=str, order="deterministic")
    print(msgspec.json.format(encoded, indent=2).decode())


def print_error(message: str) -> None:
    """Print a message to standard error, without a traceback."""
    print(message, file=sys.stderr)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print rows under their columns; full width and without lines where no terminal reads it.

    Args:
        columns: Titles and alignment.
        rows: Cells as text, one sequence for each row.
        title: A line above the table.
    """
    rows = [tuple(row) for row in rows]
    if is_terminal():
        _print_rich(columns, rows, title)
    else:
        print(format_plain(columns, rows, title=title))


def format_plain(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """Lay a table out in plain text.

    Args:
        columns: Titles and alignment.
        rows: Cells as text.
        title: A line above the table.

    Returns:
        Lines without trailing blanks.

    Example:
        >>> print(format_plain([Column("name"), Column("size", is_number=True)], [("a", "7"), ("b", "12")]))
        name  size
        a        7
        b       12
    """
    table = [tuple(column.title for column in columns), *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    lines = [title] if title else []
    for row in table:
        cells = (
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _print_rich(columns: Sequence[Column], rows: Iterable[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        side = "right" if column.is_number else "left"
        table.add_column(column.title, justify=side, overflow="fold", no_wrap=column.is_whole)
    for row in rows:
        # Text, not markup: a name such as "f[3]" is printed as it is.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def format_size(size_bytes: int | None) -> str:
    """Write a size for people, in powers of 1000.

    Example:
        >>> format_size(512), format_size(1_234_567), format_size(None)
        ('512 B', '1.2 MB', 'no cap')
    """
    if size_bytes is None:
        return "no cap"
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def format_age(seconds: float) -> str:
    """Write how long ago something was, in its largest whole unit.

    Example:
        >>> format_age(3), format_age(200), format_age(90_000), format_age(-5)
        ('3 s', '3 min', '1 d', '0 s')
    """
    seconds = max(seconds, 0.0)
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{int(seconds // length_s)} {unit}"
    return f"{int(seconds)} s"
