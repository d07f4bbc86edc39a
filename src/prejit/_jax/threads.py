"""What JAX's context managers set on one thread, handed on to another.

`jax.enable_x64(...)`, `jax.set_mesh(...)` and the like hold for the thread that entered them. A thread that lowers and
compiles in the name of another must see what that one sees, all of it: what a trace depends on is only a part.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from jax._src import config, core, layout, mesh

from prejit._jax import environment

__all__ = ["ThreadState"]

_UNSET: Any = config.config_ext.unset
_Holder: Any = config.config_ext.Config
# A thread's own position inside a trace: never another's.
_OWN = ("trace_state", "trace_state_strong_ref")

_holders: tuple[int, tuple[Any, ...]] = (-1, ())


class ThreadState:
    """Capture what is set on the calling thread, to apply it on others, any number of times.

    **Threads**: captured on one, applied on any.
    """

    __slots__ = ("_mesh", "_values")

    def __init__(self) -> None:
        self._values = [(holder, holder.get_local()) for holder in (*_options(), *_user_contexts())]
        self._mesh = mesh.thread_resources.env

    @contextmanager
    def applied(self) -> Generator[None]:
        """Let the calling thread see for a block what the captured one saw; afterwards it is as it was before."""
        resources = mesh.thread_resources
        outer_mesh, outer_stack = resources.env, list(resources.stack)
        outer = [(holder, holder.get_local()) for holder, _ in self._values]
        try:
            resources.env, resources.stack = self._mesh, [*outer_stack, self._mesh]
            for holder, value in self._values:
                _set(holder, value)
            yield
        finally:
            for holder, value in outer:
                _set(holder, value)
            resources.env, resources.stack = outer_mesh, outer_stack


def _set(holder: Any, value: Any) -> None:
    if holder.swap_local(value) is not value:
        hook = getattr(holder, "_update_thread_local_hook", None)  # what C++ keeps for the thread
        if hook is not None:
            hook(None if value is _UNSET else value)


def _options() -> tuple[Any, ...]:
    """Return the holders of everything that JAX keeps for each thread; modules that are imported late add some."""
    global _holders
    nr_known = len(config.config_states)
    if _holders[0] != nr_known:
        found: dict[int, Any] = {id(state): state for state in config.config_states.values()}
        for module in (config, core, mesh, layout):
            for name, value in vars(module).items():
                if isinstance(value, _Holder) and name not in _OWN:
                    found[id(value)] = value
        _holders = (nr_known, tuple(found.values()))
    return _holders[1]


def _user_contexts() -> list[Any]:
    """Return the holders of `jax.make_user_context` if any has a value; JAX keeps no list of them."""
    if not environment.has_user_context(environment.trace_context()):
        return []
    return [found._obj for found in gc.get_objects() if type(found) is config.UserConfig]
