import pytest

from prejit.cli.demo.clock import Span, count_stages, split_time


def test_parts_add_up_to_the_interval():
    parts = split_time([Span("trace", 1.0, 2.0), Span("compile", 3.0, 4.5)], 0.0, 5.0)
    assert parts == {"trace": 1.0, "lower": 0.0, "compile": 1.5, "load": 0.0, "rest": 2.5}


def test_a_stage_within_another_is_not_counted_twice():
    spans = [Span("trace", 1.5, 2.0), Span("trace", 1.0, 3.0), Span("lower", 3.0, 5.0), Span("trace", 4.0, 4.5)]
    parts = split_time(spans, 0.0, 5.0)
    assert parts["trace"] == pytest.approx(2.5)
    assert parts["lower"] == pytest.approx(1.5)
    assert sum(parts.values()) == pytest.approx(5.0)


def test_stages_in_parallel_threads_count_once():
    parts = split_time([Span("compile", 0.0, 2.0), Span("compile", 1.0, 3.0)], 0.0, 4.0)
    assert parts["compile"] == pytest.approx(3.0)


def test_stages_are_cut_at_the_interval():
    parts = split_time([Span("load", -1.0, 1.0), Span("lower", 9.0, 12.0), Span("trace", 20.0, 21.0)], 0.0, 10.0)
    assert (parts["load"], parts["lower"], parts["trace"], parts["rest"]) == (1.0, 1.0, 0.0, 8.0)


def test_a_stage_counts_where_it_ended():
    spans = [Span("compile", 0.0, 1.0), Span("compile", 0.5, 2.5), Span("load", 2.0, 2.2)]
    assert count_stages(spans, 0.0, 2.0) == {"trace": 0, "lower": 0, "compile": 1, "load": 0}
    assert count_stages(spans, 2.0, 3.0) == {"trace": 0, "lower": 0, "compile": 1, "load": 1}
