"""`prejit doctor`: is anything wrong here, and what mends it."""

from typing import Annotated

import typer

from prejit.cli.output import Column, print_json, print_table


def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False) -> None:
    """Show versions, devices, the store's place and rights, what is wrong and how to mend it.

    Ends with exit code 1 if anything is wrong.
    """
    from prejit.cli.checks import run_checks

    findings = run_checks()
    nr_wrong = sum(finding.status == "wrong" for finding in findings)
    nr_notes = sum(finding.status == "note" for finding in findings)
    if as_json:
        print_json({"is_well": nr_wrong == 0, "findings": findings})
    else:
        print_table(
            [Column("what"), Column("is"), Column("seen")],
            [(finding.subject, finding.status, finding.seen) for finding in findings],
        )
        hints = [f"{finding.subject}: {finding.hint}" for finding in findings if finding.hint]
        if hints:
            print("\nto mend it:\n" + "\n".join(f"  {hint}" for hint in hints))
        print("\n" + _sum_up(nr_wrong, nr_notes))
    if nr_wrong:
        raise typer.Exit(1)


def _sum_up(nr_wrong: int, nr_notes: int) -> str:
    if nr_wrong:
        return f"{nr_wrong} wrong"
    return f"nothing is wrong, {nr_notes} to note" if nr_notes else "all is well"
