"""Run a plan: call executables one after another and drop what nobody needs any more.

This loop is the hot path of a linked program. A step is four things: take its inputs from the registers, enter the
executable, make arrays of its results in C++, drop dead registers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from prejit._jax import running
from prejit.program.plan import Layout

__all__ = ["Linked", "Results"]


class Results:
    """Say what a user gets: structure, types and placement of the results.

    Args:
        out_tree: Structure.
        out_avals: Types.
        shardings: Placement.
        is_committed: Whether the arrays are tied to their device.
    """

    __slots__ = ("is_committed", "out_avals", "out_tree", "shardings")

    def __init__(
        self, out_tree: Any, out_avals: Sequence[Any], shardings: Sequence[Any], *, is_committed: bool
    ) -> None:
        self.out_tree = out_tree
        self.out_avals = tuple(out_avals)
        self.shardings = tuple(shardings)
        self.is_committed = is_committed


class Linked:
    """A program whose executables are loaded and linked for one kind of call.

    Args:
        layout: The plan.
        executables: One for each unit.
        consts: Constants, which are the first registers.
        out_avals: For each unit the types of its results.
        results: What the user gets.
        device: Where the program runs.
        flat: Arguments of the kind that it is for, or their specs.
        used: Positions of the arguments that it reads.
        given_up: Positions of the arguments whose buffers the caller gives up.
        empty: A loaded executable without inputs and results.

    **Threads**: any.
    """

    __slots__ = (
        "__weakref__", "_given_up", "_placed", "_registers", "_steps", "_take_results", "_used", "_wraps", "empty",
        "layout", "out_tree",
    )  # fmt: skip

    def __init__(
        self, layout: Layout, executables: Sequence[Any], consts: Sequence[Any], out_avals: Sequence[Sequence[Any]],
        results: Results, device: Any, flat: Sequence[Any], used: Sequence[int],
        given_up: Sequence[int], empty: Any,
    ) -> None:  # fmt: skip
        self.layout = layout
        self.empty = empty
        self.out_tree = results.out_tree
        place = running.on_device(device)
        self._registers = [*consts, *[None] * (layout.nr_registers - len(consts))]
        self._placed: list[tuple[int, Callable[[Any], Any]]] = [
            (n, place)
            for n, value in enumerate(flat)
            if not running.is_as_needed(value, device)
            if not isinstance(value, jax.ShapeDtypeStruct)  # who links for specs hands over arrays on the device
        ]
        moved = {n for n, _ in self._placed}
        self._used = tuple(used)
        self._given_up = frozenset(given_up) & set(used) - moved  # a copy is given up in place of what was moved
        final = dict(
            zip(
                layout.returns,
                running.result_handlers(results.out_avals, results.shardings, is_committed=results.is_committed),
                strict=True,
            )
        )
        # In a register a typed key is its array of integers, also where it is a result and read again.
        self._wraps = [(n, wrap) for n, aval in enumerate(results.out_avals) if (wrap := running.key_wrapper(aval))]
        raw = [running.raw_handlers(avals, device) for avals in out_avals]
        self._steps: list[tuple[Any, ...]] = []
        for call in layout.calls:
            executable = executables[call.unit]
            last = call.first + call.nr_results
            handlers = [final.get(call.first + n, handler) for n, handler in enumerate(raw[call.unit])]
            if running.needs_effects(executable):
                take = running.taker(call.reads)
                step = (None, running.with_effects(executable, handlers), take, call.first, last, call.frees)
            else:
                take = running.taker([call.reads[n] for n in running.kept_inputs(executable)])
                step = (running.enter(executable), handlers, take, call.first, last, call.frees)
            self._steps.append(step)
        self._take_results = running.taker(layout.returns)

    def run(self, flat: Sequence[Any]) -> Sequence[Any]:
        """Run on flat arguments and return flat results.

        Raises:
            RuntimeError: An argument was donated before; JAX's own error.
        """
        registers = self._registers.copy()
        nr_consts = self.layout.nr_consts
        registers[nr_consts : nr_consts + len(flat)] = flat
        for n, place in self._placed:
            registers[nr_consts + n] = place(flat[n])
        running.check_arguments(flat, self._used, self._given_up)
        for execute, handlers, take, first, last, frees in self._steps:
            if execute is not None:
                registers[first:last] = execute(take(registers)).consume_with_handlers(handlers)
            else:
                registers[first:last] = handlers(*take(registers))
            for register in frees:
                registers[register] = None
        for n in self._given_up:
            running.give_up(flat[n])
        if not self._wraps:
            return self._take_results(registers)
        out = list(self._take_results(registers))
        for n, wrap in self._wraps:
            out[n] = wrap(out[n])
        return out

    def fastpath(self, nr_leaves: int) -> Any:
        """Return what lets JAX's C++ dispatch find this program by a call's signature."""
        return running.guard(self, self.empty, nr_leaves)

    def run_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run on a call's arguments and return the result as the user's function gives it."""
        return jax.tree_util.tree_unflatten(self.out_tree, self.run(jax.tree_util.tree_leaves((args, kwargs))))
