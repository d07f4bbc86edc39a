import dataclasses

from prejit.cli.demo import report, ways
from prejit.cli.demo.sizes import QUICK
from prejit.cli.demo.worker import Run

COUNTS = {"trace": 1, "lower": 26, "compile": 1, "load": 0}


def test_the_report_says_what_its_columns_are(capsys):
    times = {field.name: 1.0 for field in dataclasses.fields(Run) if field.name.endswith("_s")}
    run = Run(**times, losses=[4.0, 3.0], setup_counts=COUNTS, step_counts=COUNTS)
    report.print_report(QUICK, dict.fromkeys(ways.WAYS, run), 10.0)
    shown = capsys.readouterr().out
    for way in ways.WAYS:
        assert (f"\n{way.name} " in shown) == way.is_shown
    for says in ("`prejit.component`", "of the first step alone", "a step: median", "Each way ran once"):
        assert says in shown
