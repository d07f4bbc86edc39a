import dataclasses
import json
from pathlib import Path

import pytest

from prejit.cli.demo.report import draw_sparkline
from prejit.cli.output import Column, format_age, format_plain, format_size, print_json, print_table


def test_plain_tables_align_and_have_no_trailing_blanks():
    table = format_plain(
        [Column("name"), Column("size", is_number=True), Column("note")], [("a", "1", ""), ("bb", "22", "x")]
    )
    assert table == "name  size  note\na        1\nbb      22  x"


def test_a_pipe_gets_plain_text(capsys):
    print_table([Column("name")], [("[bold]f[3]",)], title="entries")
    assert capsys.readouterr().out == "entries\nname\n[bold]f[3]\n"


def test_json_holds_dataclasses_and_paths(capsys):
    @dataclasses.dataclass
    class Place:
        path: Path

    print_json([Place(Path("/a"))])
    assert json.loads(capsys.readouterr().out) == [{"path": "/a"}]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (3.2e15, "3200.0 TB")])
def test_sizes(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(("age_s", "text"), [(59.9, "59 s"), (60, "1 min"), (7200, "2 h"), (86_400, "1 d")])
def test_ages(age_s, text):
    assert format_age(age_s) == text


def test_a_flat_line_is_drawn_low():
    assert draw_sparkline([1.0, 1.0]) == "▁▁"
