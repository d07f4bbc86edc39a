"""What a call of a cached eager component costs, next to `jax.jit` and to a plain `Compiled`; and one in a program.

The second table is the loop of a linked program: one run calls a tiny part many times. Next to it are the same
executable entered as often with nothing around it, and the part's own `jax.jit` called in a Python loop.

The three ways are timed in turn in one process; ratios are of neighbours. Programs are tiny and each call is waited
for at the end of a round only, so the numbers are what dispatch costs on this thread.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import harness
import prejit
from prejit._jax import running


@dataclass(frozen=True)
class Case:
    """A function with the arguments that it is called with."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    static_names: frozenset[str] = frozenset()
    nr_static_args: int = 0
    is_chained: bool = False


def add_all(*arrays: jax.Array) -> jax.Array:
    return sum(arrays[1:], start=arrays[0])


def add_named(*, a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    return a + b + c + d


def add_nested(tree: dict[str, Any], other: list[Any]) -> jax.Array:
    return add_all(*jax.tree.leaves((tree, other)))


def scale(x: jax.Array, y: jax.Array, power: int, *, mode: str) -> jax.Array:
    return (x + y) ** power if mode == "plain" else x


def advance(x: jax.Array) -> jax.Array:
    return x + 1


def make_cases() -> list[Case]:
    def arrays(count: int) -> tuple[jax.Array, ...]:
        return tuple(jnp.full((4,), float(n)) for n in range(count))

    a = arrays(16)
    return [
        *(Case(f"{count} positional", add_all, arrays(count)) for count in (1, 8, 32)),
        Case("4 keywords", add_named, kwargs=tuple(zip("abcd", a[:4], strict=True))),
        Case("nested, 12 leaves", add_nested, ({"w": {"a": a[0], "b": [a[1], a[2]]}, "v": a[3:8]}, [a[8], a[9:12]])),
        Case(
            "2 arrays, 2 statics",
            scale,
            (a[0], a[1], 2),
            kwargs=(("mode", "plain"),),
            options=(("static_argnums", 2), ("static_argnames", "mode")),
            static_names=frozenset({"mode"}),
            nr_static_args=1,
        ),
        Case("1 donated", advance, arrays(1), options=(("donate_argnums", 0),), is_chained=True),
    ]


def make_call(case: Case, function: Callable[..., Any], *, leaves_out_statics: bool) -> Callable[[], Any]:
    args, kwargs = case.args, dict(case.kwargs)
    if leaves_out_statics:
        args = args[: len(args) - case.nr_static_args]
        kwargs = {name: value for name, value in kwargs.items() if name not in case.static_names}
    if case.is_chained:
        # A donated array can't be passed again: each call takes what the last one gave.
        current = jnp.copy(args[0])

        def call() -> Any:
            nonlocal current
            current = function(current)
            return current

        return call
    return lambda: function(*args, **kwargs)


def make_part(nr_arrays: int) -> Callable[..., Any]:
    """Return a part that takes and gives some arrays."""

    @jax.jit
    def part(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple([jnp.tanh(array) + 1 for array in arrays])

    return part


def linked_ways(nr_arrays: int, nr_calls: int) -> dict[str, Callable[[], Any]]:
    """Return the ways to call a part as often as one run of a linked program does."""
    part = make_part(nr_arrays)
    arrays = tuple([jnp.full((4,), float(n)) for n in range(nr_arrays)])

    def program(*values: jax.Array) -> tuple[jax.Array, ...]:
        for _ in range(nr_calls):
            values = part(*values)
        return values

    step: Any = prejit.jit(program, link="separate")
    assert step.plan(*arrays).is_linked
    ready = step._core.dispatch().prepare(arrays, {}, list(arrays))
    (executable,) = ready.executables
    enter = running.enter(executable)
    handlers = running.raw_handlers([array.aval for array in arrays], ready.device)

    def alone() -> Any:
        values: Any = arrays
        for _ in range(nr_calls):
            values = tuple(enter(values).consume_with_handlers(handlers))
        return values

    def in_a_loop() -> Any:
        values = arrays
        for _ in range(nr_calls):
            values = part(*values)
        return values

    return {"linked": lambda: step(*arrays), "executables alone": alone, "jax.jit of the part": in_a_loop}


def linked_rows(rounds: int) -> list[dict[str, Any]]:
    """Measure what a call inside a linked program costs."""
    nr_calls = 100
    rows: list[dict[str, Any]] = []
    for nr_arrays in (1, 4, 16):
        times = harness.time_interleaved(linked_ways(nr_arrays, nr_calls), rounds=rounds, calls=1)
        per_call = {way: [seconds / nr_calls for seconds in seen] for way, seen in times.items()}
        beyond = [a - b for a, b in zip(per_call["linked"], per_call["executables alone"], strict=True)]
        rows.append(
            {"arrays in and out": nr_arrays}
            | {f"{way}, us": harness.microseconds(seen) for way, seen in per_call.items()}
            | {"beyond the executables, us": harness.microseconds(beyond)}
            | {"to jax.jit of the part": harness.compare(per_call["linked"], per_call["jax.jit of the part"])}
        )
    return rows


def main() -> None:
    options = harness.parse_arguments(__doc__)
    rounds, calls = (20, 50) if options.quick else (200, 200)
    rows: list[dict[str, Any]] = []
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        prejit.configure(cache_dir=folder)
        for case in make_cases():
            jitted = jax.jit(case.function, **dict(case.options))
            compiled = jitted.lower(*case.args, **dict(case.kwargs)).compile()
            component = prejit.component(case.function, **dict(case.options))
            ways = {
                "component": make_call(case, component, leaves_out_statics=False),
                "jax.jit": make_call(case, jitted, leaves_out_statics=False),
                "Compiled": make_call(case, compiled, leaves_out_statics=True),
            }
            times = harness.time_interleaved(ways, rounds=rounds, calls=calls)
            raw[case.name] = times
            to_jit = harness.compare(times["component"], times["jax.jit"])
            to_compiled = harness.compare(times["component"], times["Compiled"])
            rows.append(
                {"call": case.name}
                | {f"{way}, us": harness.microseconds(seen) for way, seen in times.items()}
                | {"to jax.jit": to_jit, "to Compiled": to_compiled}
            )
        columns = ["call", "component, us", "jax.jit, us", "Compiled, us", "to jax.jit", "to Compiled"]
        linked = linked_rows(rounds)
        raw["linked"] = linked
        harness.write_report("dispatch (ratios: median [95 % bounds])", rows, columns, to=options.json, raw=raw)
        harness.print_table("one call of a part in a linked program of 100", linked, list(linked[0]))


if __name__ == "__main__":
    main()
