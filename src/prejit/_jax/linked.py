"""A linked program as JAX's own compiled stage."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import core
from jax._src.interpreters import pxla
from jax._src.layout import Layout

from prejit._jax import running

__all__ = ["LinkedExecutable", "as_compiled"]


class LinkedExecutable:
    """Stand where `jax.stages.Compiled` has its one executable.

    Args:
        run: Runs on flat arguments that are on the device.
        executables: What runs, with how often one run calls each.
        in_avals: Types of the arguments.
        out_avals: Types of the results.
        debug_info: Names of the arguments.
        device: Where the program runs.
        memory: Gives the memory analysis.
        costs: Gives the cost analysis.
    """

    def __init__(
        self, run: Callable[[Sequence[Any]], Sequence[Any]], executables: Sequence[Any], in_avals: Sequence[Any],
        out_avals: Sequence[Any], debug_info: Any, device: Any, memory: Callable[[], Any], costs: Callable[[], Any],
    ) -> None:  # fmt: skip
        self._run = run
        self._executables = executables
        self.in_avals = list(in_avals)
        self.out_avals = list(out_avals)
        self._all_args_info = pxla.AllArgsInfo(list(in_avals), debug_info)
        self._kept_var_idx = set(range(len(in_avals)))
        sharding = running.single_device(device)
        self._in_shardings = [sharding] * len(in_avals)
        self._out_shardings = [sharding] * len(out_avals)
        self._xla_in_layouts = list(map(_usual_layout, in_avals))
        self._dispatch_in_layouts = self._xla_in_layouts
        self._xla_out_layouts = list(map(_usual_layout, out_avals))
        self._any_layouts: list[Any] = [None] * len(in_avals)
        self._device = device
        self._place = running.on_device(device)
        self.memory_analysis = memory
        self.cost_analysis = costs

    def call(self, *args: Any) -> list[Any]:
        """Check arguments as JAX's compiled stages do, and run."""
        names = self._all_args_info.debug_info
        pxla.check_arg_avals_for_call(self.in_avals, [core.shaped_abstractify(arg) for arg in args], names)
        pxla.check_array_xla_sharding_layout_match(
            args, self._in_shardings, self._any_layouts, names.safe_arg_names(len(args))
        )
        placed = [arg if running.is_as_needed(arg, self._device) else self._place(arg) for arg in args]
        return list(self._run(placed))

    def create_cpp_call(self, params: Any) -> None:
        """Say that there is no call in C++."""
        return

    def as_text(self) -> str:
        """Return the compiled modules, one after another."""
        return "\n\n".join(executable.as_text() for executable in self._executables)

    def runtime_executable(self) -> None:
        """Say that there is no one runtime executable."""
        return


def _usual_layout(aval: Any) -> Layout:
    return Layout(tuple(range(len(core.physical_aval(aval).shape))))


def as_compiled(executable: LinkedExecutable, traced: Any) -> Any:
    """Wrap a linked program as `jax.stages.Compiled`."""
    return jax.stages.Compiled(executable, [], traced.args_info, traced.out_tree, no_kwargs=False)
