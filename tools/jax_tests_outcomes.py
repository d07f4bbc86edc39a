"""What JAX's tests did with and without the replacement, as values: reading the records, comparing, the known list."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# How bad an outcome is; of several reports about one test the worst counts.
_SEVERITY = ("skipped", "passed", "failed", "hung", "crashed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one test.

    Attributes:
        kind: `passed`, `skipped`, `failed`, `hung` (longer than the limit) or `crashed` (its process ended).
        message: The error, one or a few lines; empty for a test that passed.
        text: The traceback as pytest shows it, or the Python stacks of a process that crashed.
    """

    kind: str
    message: str = ""
    text: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether the test neither passed nor was skipped."""
        return self.kind in ("failed", "hung", "crashed")


@dataclass(slots=True)
class Side:
    """All tests of one file, run one way.

    Attributes:
        collected: The tests that pytest found, in its order.
        outcomes: By test; a test without one did not run.
        uncollected: Errors in importing the test module.
        unfinished: The tests that ran when pytest itself was ended or died.
        is_complete: Whether pytest came to its end.
    """

    collected: list[str] = field(default_factory=list[str])
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    uncollected: list[str] = field(default_factory=list[str])
    unfinished: list[str] = field(default_factory=list[str])
    is_complete: bool = False

    def count(self, kind: str) -> int:
        """Count the tests with this outcome."""
        return sum(outcome.kind == kind for outcome in self.outcomes.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Side":
        """Read what `to_dict` returned."""
        outcomes = {test: Outcome(**fields) for test, fields in data["outcomes"].items()}
        return cls(**{**data, "outcomes": outcomes})


def read_events(lines: Iterable[str]) -> Side:
    """Put the records of one pytest run together."""
    side = Side()
    running: dict[str, None] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # the last line of a process that was killed while it wrote
            continue
        test: str = event.get("id", "")
        match event["event"]:
            case "collected":
                side.collected = event["ids"]
            case "uncollected":
                side.uncollected.append(f"{test}\n{event['text']}")
            case "started":
                running[test] = None
            case "report":
                if event["when"] == "teardown":
                    running.pop(test, None)
                _add(side, test, _reported(event))
            case "crashed":
                running.pop(test, None)
                _add(side, test, _crashed(event["text"]))
            case "finished":
                side.is_complete = True
    side.unfinished = list(running)
    return side


def _reported(event: Mapping[str, Any]) -> Outcome | None:
    outcome: str = event["outcome"]
    if outcome == "failed":
        kind = "hung" if "from pytest-timeout" in event["message"] else "failed"
        return Outcome(kind, event["message"], event["text"])
    # Set-up and tear-down pass for every test; only the call says that the test did.
    return Outcome(outcome) if outcome == "skipped" or event["when"] == "call" else None


def _crashed(stacks: str) -> Outcome:
    # Written by faulthandler: the signal's name, or its own time limit, on the first line.
    first = stacks.strip().partition("\n")[0]
    kind = "hung" if first.startswith("Timeout") else "crashed"
    return Outcome(kind, first or "the process ended without a signal that Python saw", stacks)


def _add(side: Side, test: str, outcome: Outcome | None) -> None:
    if outcome is None:
        return
    before = side.outcomes.get(test)
    # `>`: the first of several failures tells more than those that follow from it.
    if before is None or _SEVERITY.index(outcome.kind) > _SEVERITY.index(before.kind):
        side.outcomes[test] = outcome


@dataclass(frozen=True, slots=True)
class Known:
    """Tests that are expected to fail with the replacement.

    Attributes:
        pattern: Test id, where `*` stands for anything.
        reason: Why that is no fault.
    """

    pattern: str
    reason: str

    def matches(self, test: str) -> bool:
        """Whether the pattern names this test."""
        # Not fnmatch: test ids have brackets in them.
        return re.fullmatch(".*".join(map(re.escape, self.pattern.split("*"))), test) is not None


def read_known(text: str) -> list[Known]:
    """Read the list of known differences from its TOML text."""
    return [Known(entry["tests"], " ".join(entry["reason"].split())) for entry in tomllib.loads(text).get("known", [])]


@dataclass(frozen=True, slots=True)
class Difference:
    """A test that does without the replacement what it does not do with it."""

    test: str
    outcome: Outcome
    known: Known | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the replacement changed in one file.

    Attributes:
        differences: Tests that fail with the replacement only, or were skipped or did not run with it only.
        only_plain: Tests that pytest found without the replacement only.
        only_replaced: Tests that pytest found with the replacement only.
        repaired: Tests that fail without the replacement only.
        idle: Known differences that this file has no failing test for any more.
    """

    differences: list[Difference]
    only_plain: list[str]
    only_replaced: list[str]
    repaired: list[str]
    idle: list[Known]

    @property
    def unknown(self) -> list[Difference]:
        """The differences that are not in the list."""
        return [difference for difference in self.differences if difference.known is None]

    @property
    def is_good(self) -> bool:
        """Whether nothing is different beyond what is known."""
        return not (self.unknown or self.only_plain or self.only_replaced)


def compare(plain: Side | None, replaced: Side, known: Sequence[Known]) -> Comparison:
    """Compare two runs of one file; without a plain one, every failure with the replacement is a difference."""
    differences: list[Difference] = []
    repaired: list[str] = []
    for test in replaced.collected:
        after = replaced.outcomes.get(test, Outcome("crashed", "it did not run"))
        before = plain.outcomes.get(test) if plain is not None else None
        if before is not None and before.has_failed:
            if not after.has_failed:
                repaired.append(test)
        elif after.has_failed:
            differences.append(Difference(test, after, _find(known, test)))
        elif before is not None and before.kind == "passed" and after.kind == "skipped":
            skip = Outcome("skipped", "skipped with the replacement only")
            differences.append(Difference(test, skip, _find(known, test)))
    found_plain = set(plain.collected if plain is not None else replaced.collected)
    found_replaced = set(replaced.collected)
    failing = [difference.test for difference in differences]
    return Comparison(
        differences=differences,
        only_plain=sorted(found_plain - found_replaced),
        only_replaced=sorted(found_replaced - found_plain),
        repaired=repaired,
        idle=[
            entry
            for entry in known
            if any(map(entry.matches, replaced.collected)) and not any(map(entry.matches, failing))
        ],
    )


def _find(known: Sequence[Known], test: str) -> Known | None:
    return next((entry for entry in known if entry.matches(test)), None)


def headline(outcome: Outcome) -> str:
    """Return one line that is the same for failures of one cause: no addresses, no numbers of objects."""
    lines = [line.strip() for line in outcome.message.splitlines() if line.strip()] or [outcome.kind]
    # unittest starts what it compares on a line of its own.
    first = " ".join(lines[:2]) if lines[0].endswith("Error:") else lines[0]
    first = re.sub(r"0x[0-9a-f]+", "0x…", first)
    return first if len(first) <= 200 else first[:199] + "…"


def group(differences: Iterable[Difference]) -> dict[str, list[Difference]]:
    """Group differences by kind and first line, the largest group first."""
    groups: dict[str, list[Difference]] = {}
    for difference in differences:
        groups.setdefault(f"{difference.outcome.kind}: {headline(difference.outcome)}", []).append(difference)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
