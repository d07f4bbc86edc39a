"""The path of a program's call: C++ dispatch, and on a miss trace, decide, link or compile whole, and run."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from prejit._jax import tracing
from prejit.component.core import Core, Options
from prejit.component.dispatch import Dispatch
from prejit.config import settings
from prejit.errors import LinkWarning, levels_to_user

if TYPE_CHECKING:
    from prejit.program.link import Drawn, Whole

__all__ = ["JitOptions", "ProgramCore"]


@dataclasses.dataclass(frozen=True, slots=True)
class JitOptions(Options):
    """Hold what `prejit.jit` was given, checked.

    Attributes:
        given: The arguments for `jax.jit`, as they were given.
    """

    given: Mapping[str, Any]

    def is_respelling(self) -> bool:
        """Say no: `jax.jit` tells positional and keyword spellings apart, in shardings and in what is donated."""
        return False

    def jit_arguments(self) -> dict[str, Any]:
        """Return the arguments for `jax.jit`."""
        return dict(self.given)


class ProgramCore(Core):
    """Hold one program's function, options and dispatches."""

    def make_dispatch(self) -> "ProgramDispatch":
        """Make the dispatch for one configuration."""
        return ProgramDispatch(self)

    def answer(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call, which the C++ dispatch gives, or the linked program that it found."""
        from prejit._jax.running import Found

        out = call(*args, **kwargs)
        return out.program.run_call(args, kwargs) if type(out) is Found else out


class ProgramDispatch(Dispatch):
    """Dispatch the calls of one program under one configuration."""

    def call_inside(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Do what `jax.jit` does under a trace that is under way."""
        return self.jitted(*args, **kwargs)

    def answer(self, prepared: Any, leaves: list[Any]) -> tuple[Any, Any, bool]:
        """Run what was prepared, and return the result with what the C++ dispatch needs next time."""
        from prejit.program.run import Linked

        if not isinstance(prepared, Linked):
            return super().answer(prepared, leaves)
        out = jax.tree_util.tree_unflatten(prepared.out_tree, prepared.run(leaves))
        return out, prepared.fastpath(len(leaves)), False

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Get what runs a kind of call that is new, or None where it runs as under `jax.jit`."""
        from prejit.program.link import Drawn, link
        from prejit.stage.job import TracedJob
        from prejit.stage.ladder import Bypass, prepare

        if tracing.has_mixed_devices(leaves):
            return None  # JAX refuses, naming the arguments
        program = tracing.open_traced(self.jitted.trace(*args, **kwargs))
        drawn = self.draw(program, leaves)
        if isinstance(drawn, Drawn):
            try:
                linked, used = link(drawn, program, leaves)
            except Exception as error:  # noqa: BLE001  # whatever XLA has against a part, it may take the whole
                self._report(error)
            else:
                for part in used:
                    part.loaded.used_by(self)
                    self.core.seen_keys.add(part.key.digest)
                return linked
        prepared = prepare(TracedJob(program, leaves, self.core.name))
        if isinstance(prepared, Bypass):
            return None
        self.core.seen_keys.add(prepared.key.digest)
        return prepared

    def draw(self, program: tracing.TracedProgram, leaves: list[Any]) -> "Drawn | Whole":
        """Decide how a traced call is linked."""
        from prejit.program.link import draw

        link = self.core.options.link
        return draw(program, leaves, settings().link if link == "auto" else link)

    def _report(self, error: Exception) -> None:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        warnings.warn(
            f"linking {self.core.name}: expected parts that compile, got {type(error).__name__}: {first}; "
            "it is compiled as one module\nhint: link='inline' asks for one module at once",
            LinkWarning,
            stacklevel=levels_to_user(),
        )
