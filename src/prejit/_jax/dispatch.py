"""JAX's C++ dispatch with our own answer to a miss.

`jax.jit` is a C++ object that looks up the call's signature (tree, avals, weak types, shardings, static values, thread
configuration) and, when it finds it, runs the executable without entering Python. Its miss handler is a Python
function. This module makes such an object with a miss handler of ours, so a cached component costs what `jax.jit` does.
"""

from collections.abc import Callable
from typing import Any

from jax._src import tree_util
from jax._src.interpreters import pxla
from jax._src.lib import _jax

# One bounded cache for all components (least recently used first out); an entry goes with its function, too.
_CAPACITY = 8192
_cache = _jax.PjitFunctionCache(capacity=_CAPACITY)

MissHandler = Callable[..., tuple[Any, Any, bool]]


def make_dispatcher(name: str, python: Callable[..., Any], miss: MissHandler) -> Callable[..., Any]:
    """Make a callable with C++ dispatch.

    Args:
        name: Shown in profiles.
        python: Called instead of everything else under `jax.disable_jit`.
        miss: Called with the arguments when their signature is new; returns the result, the data for the next time
            (from `executables.fastpath`) or None, and False.
    """
    return _jax.pjit(
        name,
        python,
        miss,
        [],
        [],
        pxla.JitGlobalCppCacheKeys(),
        tree_util.dispatch_registry,
        pxla.cc_shard_arg,
        _cache,
    )


def forget(dispatcher: Any) -> None:
    """Drop the executables that a dispatcher has seen."""
    dispatcher._clear_cache()


def cache_size(dispatcher: Any) -> int:
    """Return how many signatures a dispatcher knows."""
    return int(dispatcher._cache_size())
