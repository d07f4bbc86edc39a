"""The object that `prejit.component` returns."""

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import jax

from prejit._jax import tracing
from prejit._jax.environment import dispatch_token
from prejit.component.core import DIRECTLY_TAKEN, Core
from prejit.config import is_enabled

if TYPE_CHECKING:
    from prejit.key import ComponentKey

__all__ = ["CacheInfo", "Component", "Wrapper"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Count what one component or program did in this process.

    A call that the C++ dispatch answers is not a lookup and is not counted. A linked program has one lookup for each
    executable that it needs.

    Attributes:
        hits: Lookups answered from memory or the store.
        misses: Lookups that had to compile.
        bypasses: Kinds of call that can't be stored and run as under `jax.jit`.
        traces: JAX trace events, of nested jitted functions too.
        lowerings: JAX lowering events.
        compiles: JAX compile events.
        loads: Executables loaded.
        entries: Distinct keys seen.

    Example:
        >>> import prejit
        >>> double = prejit.component(lambda x: x * 2)
        >>> with prejit.use_store(prejit.Store(None)):
        ...     outs = [double(1.0), double(2.0)]
        >>> info = double.cache_info()
        >>> info.misses, info.hits, info.entries
        (1, 0, 1)
    """

    hits: int
    misses: int
    bypasses: int
    traces: int
    lowerings: int
    compiles: int
    loads: int
    entries: int


class Wrapper(Generic[P, R]):
    """What `prejit.component` and `prejit.jit` return have in common.

    It pickles and copies by reference, as a function does. On a class it is a method.
    """

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], core: Core) -> None:
        functools.update_wrapper(cast("Any", self), function)
        self._core = core

    @tracing.api_boundary
    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Trace for arguments or their specs.

        Args:
            *args: Arrays, or `jax.ShapeDtypeStruct` in their place.
            **kwargs: The same by name.

        Returns:
            A `jax.stages.Traced`.

        Example:
            >>> import jax, prejit
            >>> prejit.component(lambda x: x * 2).trace(jax.ShapeDtypeStruct((3,), "float32")).out_info.shape
            (3,)
        """
        core = self._core
        spelled = core.binder.wrap(args, kwargs)
        if spelled is None or not is_enabled():  # a static value that is not hashable is for JAX to report
            return core.plain.trace(*args, **kwargs)
        return core.dispatch().trace(*core.normalize(*spelled))

    @tracing.api_boundary
    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Trace and lower for arguments or their specs; returns a `jax.stages.Lowered`.

        Example:
            >>> import jax, prejit
            >>> lowered = prejit.component(lambda x: x * 2).lower(jax.ShapeDtypeStruct((3,), "float32"))
            >>> "stablehlo" in lowered.as_text()
            True
        """
        return self.trace(*args, **kwargs).lower()

    @tracing.api_boundary
    def compile(self, *args: Any, **kwargs: Any) -> jax.stages.Compiled:
        """Get the executable for arguments or their specs, from the store if it is there.

        Returns:
            A `jax.stages.Compiled`. A later call with such arguments finds the executable in memory.

        Example:
            >>> import jax, prejit
            >>> compiled = prejit.component(lambda x: x * 2).compile(jax.ShapeDtypeStruct((), "float32"))
            >>> float(compiled(jax.numpy.float32(3)))
            6.0
        """
        core = self._core
        spelled, bound = core.binder.wrap(args, kwargs), core.binder.bind(args, kwargs)
        if spelled is None or bound is None or not is_enabled():
            return core.plain.lower(*args, **kwargs).compile()
        return core.dispatch().compile(*core.normalize(*bound), core.normalize(*spelled))

    @tracing.api_boundary
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return shapes and dtypes of the result for arguments or their specs; nothing is compiled or stored.

        Example:
            >>> import jax, prejit
            >>> prejit.component(lambda x: x.sum()).eval_shape(jax.ShapeDtypeStruct((3,), "float32")).shape
            ()
        """
        return self.trace(*args, **kwargs).out_info

    @tracing.api_boundary
    def key_for(self, *args: Any, **kwargs: Any) -> "ComponentKey":
        """Return the key under which the executable for arguments or their specs is stored.

        Of a program that is linked it is the key that it would have as one module; `plan` tells those of its parts.

        Raises:
            KeyingError: The call can't be stored; the reason says why.

        Example:
            >>> import jax, prejit
            >>> scale = prejit.component(lambda x: x * 2)
            >>> one, other = (scale.key_for(jax.ShapeDtypeStruct((n,), "float32")) for n in (3, 4))
            >>> ("signature", "in_avals") in [(found.group, found.name) for found in one.diff(other)]
            True
        """
        core = self._core
        bound = core.binder.bind(args, kwargs)
        return core.dispatch().key_for(*((args, kwargs) if bound is None else core.normalize(*bound)))

    def cache_info(self) -> CacheInfo:
        """Count what this component or program did in this process; see `prejit.CacheInfo`.

        Example:
            >>> import prejit
            >>> double = prejit.component(lambda x: x * 2)
            >>> out = double(1.0)
            >>> double.cache_info().entries
            1
        """
        core = self._core
        names = ("hits", "misses", "bypasses", "traces", "lowerings", "compiles", "loads")
        return CacheInfo(*[core.tally.get(name) for name in names], entries=len(core.seen_keys))

    def cache_clear(self) -> None:
        """Forget traces, executables and counts; the store keeps its entries.

        What is shared with others stays: executables that are loaded, where the next call finds them, and a program's
        trace, which is that of every `jax.jit` of the function; `Program.clear_cache` drops those.

        Example:
            >>> import prejit
            >>> factors = [2.0]
            >>> scale = prejit.component(lambda x: x * factors[0])
            >>> first = scale(1.0)
            >>> factors[0] = 3.0
            >>> float(scale(1.0))  # what was traced
            2.0
            >>> scale.cache_clear()
            >>> float(scale(1.0))
            3.0
        """
        self._core.start_afresh()
        self._core.tally.clear()
        self._core.seen_keys.clear()

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: "Wrapper[Concatenate[T, Q], R]", instance: T, owner: type | None = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind as a method."""
        bound: Any = self if instance is None else types.MethodType(cast("Any", self), instance)
        return bound

    def __reduce__(self) -> str:
        return cast("str", getattr(self, "__qualname__", repr(self)))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Component(Wrapper[P, R]):
    """A function that is compiled once and kept; see `prejit.component`.

    Example:
        >>> import jax.numpy as jnp, prejit
        >>> layer = prejit.component(lambda w, x: jnp.tanh(x @ w), name="layer")
        >>> isinstance(layer, prejit.Component), layer
        (True, <prejit.component layer>)
        >>> layer(jnp.eye(2), jnp.ones(2)).shape
        (2,)
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, as `jax.jit` of it would."""
        # The hot path: what `jax.jit` costs plus some 0.7 us (benchmarks/bench_dispatch.py). So no decorator around it,
        # nothing is looked up twice, and tracebacks are filtered only when there is one.
        core = self._core
        try:
            if not is_enabled():
                return cast("R", core.plain(*args, **kwargs))
            if kwargs or core.is_binding:
                return core.call_bound(args, kwargs)
            for value in args:
                if type(value) not in DIRECTLY_TAKEN and not core.takes(value):
                    return core.call_unusual(args, kwargs)
            token = dispatch_token()
            last = core.last
            if last[0] != token:
                last = core.entry(token)
            return last[1](*args)
        except Exception as error:
            tracing.hide_frames(error)
            raise  # without an operand: it would add this frame again

    def __repr__(self) -> str:
        return f"<prejit.component {self._core.name}>"
