"""Reading records of pytest runs and comparing them."""

import json

import pytest
from jax_tests_outcomes import Difference, Known, Outcome, Side, compare, group, headline, read_events, read_known


def events(*records):
    return [json.dumps(record) for record in records]


def report(test, when, outcome, message=""):
    return {"event": "report", "id": test, "when": when, "outcome": outcome, "message": message, "text": message}


def ran(test, outcome, message=""):
    call = report(test, "call", outcome, message)
    return [{"event": "started", "id": test}, report(test, "setup", "passed"), call, report(test, "teardown", "passed")]


def side(**outcomes):
    kinds = {test: Outcome(kind) for test, kind in outcomes.items()}
    return Side(collected=list(outcomes), outcomes=kinds, is_complete=True)


def test_a_run_is_read():
    read = read_events(
        events(
            {"event": "collected", "ids": ["a", "b", "c"]},
            *ran("a", "passed"),
            *ran("b", "failed", "ValueError: no"),
            *ran("c", "skipped"),
            {"event": "finished", "status": 1},
        )
    )
    assert {test: outcome.kind for test, outcome in read.outcomes.items()} == {
        "a": "passed",
        "b": "failed",
        "c": "skipped",
    }
    assert read.outcomes["b"].message == "ValueError: no"
    assert read.is_complete
    assert read.unfinished == []


def test_a_test_whose_teardown_or_subtest_fails_has_failed():
    teardown = [report("a", "call", "passed"), report("a", "teardown", "failed", "in teardown")]
    subtest = [report("b", "call", "failed", "in a subtest"), report("b", "call", "passed")]
    read = read_events(events(*teardown, *subtest))
    assert read.outcomes == {
        "a": Outcome("failed", "in teardown", "in teardown"),
        "b": Outcome("failed", "in a subtest", "in a subtest"),
    }


def test_the_end_of_a_process_tells_crash_from_time_limit():
    read = read_events(
        events(
            {"event": "started", "id": "a"},
            {"event": "crashed", "id": "a", "text": "Fatal Python error: Segmentation fault\n\nThread 0x1"},
            {"event": "crashed", "id": "b", "text": "Timeout (0:00:05)!\nThread 0x1"},
            {"event": "crashed", "id": "c", "text": ""},
            *ran("d", "failed", "Failed: Timeout (>4.0s) from pytest-timeout."),
        )
    )
    assert [read.outcomes[test].kind for test in "abcd"] == ["crashed", "hung", "crashed", "hung"]
    assert read.outcomes["a"].message == "Fatal Python error: Segmentation fault"
    assert "without a signal" in read.outcomes["c"].message


def test_what_ran_when_pytest_ended_is_known():
    started = {"event": "started", "id": "a"}
    read = read_events([*events(started), '{"event": "repo'])
    assert read.unfinished == ["a"]
    assert not read.is_complete


def test_a_side_comes_back_from_json():
    before = side(a="passed", b="failed")
    assert Side.from_dict(json.loads(json.dumps(before.to_dict()))) == before


def test_only_what_the_replacement_changes_is_a_difference():
    plain = side(same="passed", broken="passed", flaky="failed", repaired="failed", dropped="passed", idle="skipped")
    replaced = side(
        same="passed", broken="crashed", flaky="failed", repaired="passed", dropped="skipped", idle="skipped"
    )
    comparison = compare(plain, replaced, [])
    assert [difference.test for difference in comparison.differences] == ["broken", "dropped"]
    assert comparison.repaired == ["repaired"]
    assert not comparison.is_good


def test_without_a_plain_side_every_failure_is_a_difference():
    comparison = compare(None, side(a="passed", b="failed", c="skipped"), [])
    assert [difference.test for difference in comparison.differences] == ["b"]
    assert comparison.only_replaced == []


def test_a_test_that_did_not_run_is_a_difference():
    replaced = Side(collected=["a"])
    comparison = compare(side(a="passed"), replaced, [])
    assert comparison.unknown[0].outcome.message == "it did not run"


def test_tests_that_only_one_side_found_are_told():
    comparison = compare(side(a="passed", b="passed"), side(a="passed", c="passed"), [])
    assert (comparison.only_plain, comparison.only_replaced) == (["b"], ["c"])
    assert not comparison.is_good


def test_known_differences_are_good_and_idle_ones_are_told():
    known = [Known("f.py::T::test_b*", "counts"), Known("f.py::T::test_a", "gone"), Known("g.py::*", "elsewhere")]
    tests = {"f.py::T::test_a": "passed", "f.py::T::test_b[0]": "passed"}
    comparison = compare(side(**tests), side(**{**tests, "f.py::T::test_b[0]": "failed"}), known)
    assert comparison.is_good
    assert comparison.differences[0].known is known[0]
    assert comparison.idle == [known[1]]


@pytest.mark.parametrize(
    ("pattern", "test", "matches"),
    [("a::b[*]", "a::b[1]", True), ("a::b[*]", "a::b1", False), ("a::b", "a::bc", False), ("*c", "a::bc", True)],
)
def test_only_the_star_is_special(pattern, test, matches):
    assert Known(pattern, "").matches(test) is matches


def test_the_known_list_is_read():
    text = '[[known]]\ntests = "a::b"\nreason = """\n  one\n  two\n"""'
    assert read_known(text) == [Known("a::b", "one two")]
    assert read_known("# nothing yet") == []


def test_failures_of_one_cause_are_one_group():
    def failing(test, message):
        return Difference(test, Outcome("failed", message))

    same = [failing("a", "TypeError: at 0x7f01"), failing("b", "TypeError: at 0x7f02\nmore")]
    groups = group([failing("c", "AssertionError:\n- 1\n+ 2"), *same])
    assert {title: [difference.test for difference in members] for title, members in groups.items()} == {
        "failed: TypeError: at 0x…": ["a", "b"],
        "failed: AssertionError: - 1": ["c"],
    }
    assert len(headline(Outcome("failed", "x" * 500))) == 200
