"""The object that `prejit.jit` returns."""

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from prejit._jax import tracing
from prejit._jax.environment import dispatch_token
from prejit._jax.running import Found
from prejit.component.core import DIRECTLY_TAKEN
from prejit.component.wrapper import Wrapper
from prejit.config import is_enabled, override, settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from prejit.program.dispatch import ProgramCore
    from prejit.program.report import Plan

__all__ = ["Program"]

P = ParamSpec("P")
R = TypeVar("R")


class Program(Wrapper[P, R]):
    """A program that is compiled in parts, kept, and linked; see `prejit.jit`.

    Example:
        >>> import jax.numpy as jnp, prejit
        >>> layer = prejit.component(lambda x: jnp.sin(x) + 1)
        >>> model = prejit.jit(lambda x: layer(layer(layer(x))), link="separate")
        >>> isinstance(model, prejit.Program), model(jnp.ones(2)).shape
        (True, (2,))
        >>> model.plan(jnp.ones(2)).is_linked
        True
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the program, as `jax.jit` of it would."""
        # As for a component: nothing is looked up twice, and tracebacks are filtered only when there is one.
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
            out = last[1](*args)
            return out.program.run_call(args, kwargs) if type(out) is Found else out
        except Exception as error:
            tracing.hide_frames(error)
            raise  # without an operand: it would add this frame again

    def __repr__(self) -> str:
        # As JAX's own: tests and notebooks of users read it.
        try:
            return f"<PjitFunction of {self.__wrapped__!r}>"
        except Exception:  # noqa: BLE001  # the function's own repr failed, or it was deleted
            return "<PjitFunction>"

    @tracing.api_boundary
    def plan(self, *args: Any, **kwargs: Any) -> "Plan":
        """Return what is done with a kind of call: which parts there are, how often each is called, and why.

        Args:
            *args: Arrays, or `jax.ShapeDtypeStruct` in their place.
            **kwargs: The same by name.

        Returns:
            A `Plan`. Nothing is compiled for it, only for its `cost_analysis()` and `memory_analysis()`.

        Example:
            >>> import jax, prejit
            >>> step = prejit.jit(lambda x: x * 2)
            >>> step.plan(jax.ShapeDtypeStruct((3,), "float32")).is_linked
            False
        """
        core = cast("ProgramCore", self._core)
        bound = core.binder.bind(args, kwargs)
        return core.plan(*((args, kwargs) if bound is None else core.normalize(*bound)))

    def warm(self, *args: Any, progress: bool = True, background: bool = False, **kwargs: Any) -> "Future[None]":
        """Compile a kind of call, or load it from the store, before it is needed.

        Args:
            *args: Arrays, or `jax.ShapeDtypeStruct` in their place.
            progress: Whether a line on the terminal shows what compiles.
            background: Whether to return at once.
            **kwargs: The same by name.

        Returns:
            A future without a result, done when the executables are in memory; it raises what compiling raised.

        **Blocks**: unless in the background. **Threads**: in the background, one of its own under the caller's JAX
        contexts; a call meanwhile waits for what compiles already.

        Example:
            >>> import jax, prejit
            >>> prejit.jit(lambda x: x * 2).warm(jax.ShapeDtypeStruct((3,), "float32")).done()
            True
        """
        from prejit.program.warm import warm

        def compile_all() -> None:
            with override(progress=settings().progress if progress else "off"):
                self.compile(*args, **kwargs)

        return warm(compile_all, is_background=background)

    def clear_cache(self) -> None:
        """Forget traces and executables, as the same method of `jax.jit`'s does; the store keeps its entries.

        The next call traces again, so it sees what globals are then, and loads from the store. `cache_clear`, which a
        component has too, keeps what is shared with others, the trace of every `jax.jit` of the function and the
        executables that are loaded; it sets the counts of `cache_info` to zero, which this method keeps.

        Example:
            >>> import prejit
            >>> factors = [2.0]
            >>> scale = prejit.jit(lambda x: x * factors[0])
            >>> first = scale(1.0)
            >>> factors[0] = 3.0
            >>> scale.cache_clear()
            >>> float(scale(1.0))
            2.0
            >>> scale.clear_cache()
            >>> float(scale(1.0))
            3.0
        """
        cast("ProgramCore", self._core).unload()

    def __getstate__(self) -> dict[str, Any]:
        return {"function_name": self._core.name}  # what JAX's own tells; pickling goes by reference

    def _cache_size(self) -> int:
        return self._core.cache_size()
