"""The path of a program's call: C++ dispatch, and on a miss trace, decide, link or compile whole, and run."""

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from prejit import events
from prejit._jax import tracing
from prejit._jax.environment import dispatch_token
from prejit._jax.running import Found
from prejit.component.core import Core, Options
from prejit.component.dispatch import Call, Dispatch
from prejit.config import Link, is_enabled, settings
from prejit.errors import LinkWarning, warn_user
from prejit.program.known import KNOWN

if TYPE_CHECKING:
    from prejit.program.link import Drawn, Ready, Whole
    from prejit.program.report import Plan

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

    def is_inferring(self) -> bool:
        """Say no where both are given, as `jax.jit` does."""
        return not {"static_argnums", "static_argnames"} <= self.given.keys()

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
        out = call(*args, **kwargs)
        return out.program.run_call(args, kwargs) if type(out) is Found else out

    def unload(self) -> None:
        """Forget traces and executables, and give back the memory of those that nobody else uses."""
        from prejit.stage.loaded import loaded_executables
        from prejit.store import get_store

        self.start_afresh()
        self.plain.clear_cache()
        cache = loaded_executables(get_store())
        for place in list(cache):
            loaded = cache.pop(place) if place[0] in self.seen_keys else None
            if loaded is not None:
                loaded.unload()
        self.seen_keys.clear()

    def plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Plan":
        """Return what is done with a kind of call."""
        dispatch = self.dispatch()
        assert isinstance(dispatch, ProgramDispatch)
        return dispatch.plan(args, kwargs)


_first: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def _is_first_configuration(function: Any) -> bool:
    """Say whether the trace that all share who jit a function is one for the options of this thread.

    JAX's cache of traces does not look at all of them, so the trace belongs to those under which it was made first.
    """
    here = tracing.epoch(), dispatch_token()
    try:
        first = _first.setdefault(function, here)
        if first[0] is not here[0]:  # `jax.clear_caches` was called
            first = _first[function] = here
    except TypeError:  # can't be hashed or held weakly, which JAX says
        return True
    return first[1] == here[1]


class ProgramDispatch(Dispatch):
    """Dispatch the calls of one program under one configuration."""

    def make_jit(self) -> Any:
        """Take `jax.jit` of the very function where that can be, so that all who jit it share one trace, as in JAX."""
        can_share = not self.core.binder.has_statics and _is_first_configuration(self.core.function)
        return self.core.plain if can_share else self.fresh_jit()

    def call_inside(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Do what `jax.jit` does under a trace that is under way."""
        return self.jitted(*args, **kwargs)

    def answer(self, prepared: Any, leaves: list[Any]) -> tuple[Any, Any, bool]:
        """Run what was prepared, and return the result with what the C++ dispatch needs next time."""
        from prejit.program.link import Ready

        tracing.announce_miss()
        if not isinstance(prepared, Ready):
            return super().answer(prepared, leaves)
        linked = prepared.linked
        out = jax.tree_util.tree_unflatten(linked.out_tree, linked.run(leaves))
        return out, linked.fastpath(len(leaves)), False

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Get what runs a kind of call that is new, or None where it runs as under `jax.jit`."""
        from prejit.program.link import Ready
        from prejit.stage.job import TracedJob, read_by
        from prejit.stage.ladder import Bypass, prepare

        program = tracing.open_traced(self.jitted.trace(*args, **kwargs))
        if tracing.has_mixed_devices(leaves) and tracing.has_mixed_devices(read_by(program, leaves)):
            return None  # JAX refuses, naming the arguments
        trace, kind = program.closed_jaxpr, self._kind_of_program(program, leaves)
        prepared = KNOWN.get(trace, kind)
        if prepared is not None:
            self._use(prepared)
            return prepared
        drawn = self._draw(program, leaves)
        ready = self._link(drawn, program, leaves)
        if isinstance(ready, Ready):
            self._use(ready)
            KNOWN.put(trace, kind, ready)
            return ready
        if self._asked() == "outline":
            from prejit.program.apart import with_parts_apart

            program = with_parts_apart(program)
        job = TracedJob(program, leaves, self.core.name)
        try:
            prepared = prepare(job)
        except ValueError as error:  # what JAX has against it, it says in its own words
            events.logger.debug("%s: %s", self.core.name, error)
            return None
        if isinstance(ready, Exception):
            self._report(ready)
        if isinstance(prepared, Bypass):
            return None
        self._use(prepared)
        KNOWN.put(trace, kind, prepared)
        return prepared

    def _kind_of_program(self, program: tracing.TracedProgram, leaves: list[Any]) -> Any:
        """Return what tells apart the calls that share a trace."""
        from prejit.store import get_store

        options = tuple(program.options.items()), program.compiler_options, program.donated
        types = tuple([tracing.call_type(leaf) for leaf in leaves])
        return types, options, self._asked(), dispatch_token(), tracing.trace_context(), weakref.ref(get_store())

    def _use(self, prepared: Any) -> None:
        """Note what a call uses, so that it lets go of it when it is to be unloaded."""
        from prejit.program.link import Ready

        for part in prepared.used if isinstance(prepared, Ready) else (prepared,):
            part.loaded.used_by(self)
            part.loaded.used_by(KNOWN)
            self.core.seen_keys.add(part.key.digest)

    def as_compiled(self, prepared: Any, traced: Any, spelled: Call) -> Any:
        """Return what was prepared as JAX's own stage."""
        from prejit.program.link import Ready
        from prejit.program.report import as_compiled

        if not isinstance(prepared, Ready):
            return super().as_compiled(prepared, traced, spelled)
        return as_compiled(prepared, traced, self.plan(*spelled))

    def plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Plan":
        """Return what is done with a kind of call, without compiling anything."""
        from prejit.program.link import Whole
        from prejit.program.report import make_plan
        from prejit.stage.job import TracedJob

        leaves = jax.tree_util.tree_leaves((args, kwargs))
        with events.attributed_to(self.core.tally):
            program = tracing.open_traced(self.jitted.trace(*args, **kwargs))
            drawn = self._draw(program, leaves) if is_enabled() else Whole("prejit is disabled")

        def executables() -> list[Any]:
            from prejit.program.link import Ready

            with events.attributed_to(self.core.tally):
                prepared = self.prepare(args, kwargs, leaves) if is_enabled() else None
            if isinstance(prepared, Ready):
                return list(prepared.executables)
            if prepared is None:
                return [self.jitted.lower(*args, **kwargs).compile()._executable]
            return [prepared.loaded.executable]

        job = TracedJob(program, leaves, self.core.name)
        return make_plan(self.core.name, self._asked(), drawn, job, executables)

    def _asked(self) -> Link:
        link = self.core.options.link
        return settings().link if link == "auto" else link

    def _draw(self, program: tracing.TracedProgram, leaves: list[Any]) -> "Drawn | Whole":
        from prejit.program.link import Whole, draw

        try:
            options = self.core.options
            return draw(program, leaves, self._asked(), options.given if isinstance(options, JitOptions) else ())
        except Exception as error:  # noqa: BLE001  # a fault of ours must not be the user's
            self._report(error)
            return Whole(f"it could not be cut: {type(error).__name__}")

    def _link(
        self, drawn: "Drawn | Whole", program: tracing.TracedProgram, leaves: list[Any]
    ) -> "Ready | Exception | None":
        from prejit.program.link import Whole, link

        if isinstance(drawn, Whole):
            return None
        try:
            return link(drawn, program, leaves)
        except Exception as error:  # noqa: BLE001  # whatever XLA has against a part, it may take the whole
            return error

    def _report(self, error: Exception) -> None:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        warn_user(
            f"linking {self.core.name}: expected parts that compile, got {type(error).__name__}: {first}; "
            "it is compiled as one module\nhint: link='inline' asks for one module at once",
            LinkWarning,
        )
