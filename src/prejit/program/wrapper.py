"""The object that `prejit.jit` returns."""

from typing import ParamSpec, TypeVar, cast

from prejit._jax import tracing
from prejit._jax.environment import dispatch_token
from prejit._jax.running import Found
from prejit.component.core import DIRECTLY_TAKEN
from prejit.component.wrapper import Wrapper
from prejit.config import is_enabled

__all__ = ["Program"]

P = ParamSpec("P")
R = TypeVar("R")


class Program(Wrapper[P, R]):
    """A program that is compiled in parts, kept, and linked; see `prejit.jit`."""

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

    def clear_cache(self) -> None:
        """Forget traces and executables, as the same method of `jax.jit`'s does; the store keeps its entries."""
        self._core.start_afresh()

    def _cache_size(self) -> int:
        return self._core.cache_size()
