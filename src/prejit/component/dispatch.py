"""The path of a call: C++ dispatch, and on a miss trace, prepare and run."""

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from prejit import events
from prejit._jax import tracing
from prejit._jax.dispatch import forget, make_dispatcher
from prejit.config import settings
from prejit.errors import KeyingError
from prejit.signature.binding import unwrap, without_statics
from prejit.signature.partition import box, has_static_leaves
from prejit.stage.flight import Flights

if TYPE_CHECKING:
    from prejit.component.core import Core
    from prejit.key import ComponentKey
    from prejit.stage.job import NamedJob, TracedJob

__all__ = ["Dispatch"]

Call = tuple[tuple[Any, ...], dict[str, Any]]

_MAX_CALLS = 512  # Kinds of call remembered here, besides JAX's C++ cache.
_flights = Flights()


class Dispatch:
    """Dispatch the calls of one component under one configuration.

    The jitted function is a closure of its own, so JAX's caches hold nothing of another component of the same function,
    whose globals may have changed since, and everything goes when the component goes.
    """

    def __init__(self, core: "Core") -> None:
        self._core = weakref.ref(core)
        self.jitted = self.make_jit()
        self._epoch = tracing.epoch()
        self._calls: OrderedDict[Any, Any] = OrderedDict()
        me = weakref.ref(self)

        def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
            dispatch = me()
            assert dispatch is not None  # the component that calls holds it
            return dispatch.on_miss(args, kwargs)

        self.call = make_dispatcher(core.name, _make_python(core.function), miss)

    @property
    def core(self) -> "Core":
        """The component, which is alive while it is being called."""
        core = self._core()
        assert core is not None
        return core

    def make_jit(self) -> Any:
        """Make the `jax.jit` that traces the calls."""
        return self.fresh_jit()

    def fresh_jit(self) -> Any:
        """Return a new `jax.jit` of the function."""
        return tracing.plain_jit(_make_body(self.core.function), **self.core.options.jit_arguments())

    def forget(self) -> None:
        """Drop the executables; the next call looks them up again."""
        self._calls.clear()
        forget(self.call)

    def on_miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
        """Answer a call whose signature the C++ dispatch has not seen."""
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        if self._epoch is not tracing.epoch():  # `jax.clear_caches` was called
            self._epoch = tracing.epoch()
            self._calls.clear()
        with events.attributed_to(self.core.tally):
            if not tracing.is_top_level() or any(isinstance(leaf, tracing.Tracer) for leaf in leaves):
                return self.call_inside(args, kwargs, leaves), None, False
            if tracing.needs_plain_jit():
                events.record_lookup(events.Lookup(self.core.name, "", "bypass", "a debugging mode of JAX is on"))
                return self.jitted(*args, **kwargs), None, False
            prepared = self.prepared(args, kwargs, leaves)
            if prepared is None:
                return self.jitted(*args, **kwargs), None, False
            return self.answer(prepared, leaves)

    def answer(self, prepared: Any, leaves: list[Any]) -> tuple[Any, Any, bool]:
        """Run what was prepared, and return the result with what the C++ dispatch needs to do so by itself."""
        from prejit._jax import executables

        out_flat = prepared.run(leaves)
        out_tree = prepared.out_tree
        loaded = prepared.loaded
        loaded.used_by(self)
        fast = executables.fastpath(loaded.executable, out_tree, leaves, out_flat, prepared.const_args)
        return jax.tree_util.tree_unflatten(out_tree, out_flat), fast, False

    def prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Return what runs the call, or None where it runs as under `jax.jit`."""
        try:
            kind = self._kind_of_call(args, kwargs, leaves)
        except Exception:  # noqa: BLE001  # not a value for JAX, which says so itself
            return None
        if kind not in self._calls:
            with _flights.enter((id(self), kind), settings().lock_timeout_s):
                if kind not in self._calls:
                    self._calls[kind] = self.prepare(args, kwargs, leaves)
                    while len(self._calls) > _MAX_CALLS:
                        self._calls.popitem(last=False)
        return self._calls.get(kind)

    def _kind_of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        for leaf in leaves:
            tracing.check_argument(leaf)
        types = tuple([tracing.call_type(leaf) for leaf in leaves])
        return jax.tree_util.tree_structure((args, kwargs)), types, tracing.trace_context()

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Get what runs a kind of call that is new, or None where it runs as under `jax.jit`."""
        from prejit.stage.job import NotNamedError  # see the note in stage/__init__.py
        from prejit.stage.ladder import Bypass, prepare

        if tracing.has_mixed_devices(leaves):
            return None  # JAX refuses, naming the arguments
        named = self._named_job(args, kwargs, leaves)
        try:
            prepared = prepare(named or self.traced_job(args, kwargs, leaves))
        except NotNamedError:
            prepared = prepare(self.traced_job(args, kwargs, leaves))
        if isinstance(prepared, Bypass):
            return None
        self.core.seen_keys.add(prepared.key.digest)
        return prepared

    def traced_job(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> "TracedJob":
        """Make the job of a call that is identified by its program."""
        from prejit.stage.job import TracedJob

        program = tracing.open_traced(self.jitted.trace(*args, **kwargs))
        return TracedJob(program, leaves, self.core.name, self.core.explicit_identity())

    def _named_job(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> "NamedJob | None":
        """Make the job of a call that the user's key identifies, if the call's own parts have content to compare."""
        from prejit.stage.job import NamedJob

        core = self.core
        if core.options.key is None:
            return None
        try:
            return NamedJob(
                core.function, lambda: self.jitted.trace(*args, **kwargs), args, kwargs, leaves, core.name,
                core.explicit_identity(), core.options.donated(),
            )  # fmt: skip
        except KeyingError:
            return None

    def call_inside(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Put the call into the trace that is under way, as a call of a jitted function."""
        from prejit._jax.outline import Mark, bind_marked, can_outline
        from prejit.component.policy import is_outlined

        link = self.core.options.link
        if link == "auto":
            link = settings().link
        traced = self.jitted.trace(*args, **kwargs)
        if link == "inline":
            return bind_marked(traced, leaves, Mark.INLINE)
        if link == "separate":
            return bind_marked(traced, leaves, Mark.SEPARATE if can_outline(traced) else Mark.SEPARATE_PLAIN)
        if not can_outline(traced) or (link == "auto" and not is_outlined(traced.jaxpr)):
            return self.jitted(*args, **kwargs)
        return bind_marked(traced, leaves, Mark.APART if link == "auto" else Mark.OUTLINE)

    # -- stages ahead of time, which share the trace -----------------------------------------------------------------

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace and return JAX's own stage."""
        with events.attributed_to(self.core.tally):
            return self.jitted.trace(*args, **kwargs)

    def compile(self, args: tuple[Any, ...], kwargs: dict[str, Any], spelled: Call) -> Any:
        """Return JAX's own compiled stage, from the store where possible.

        Args:
            args: Positional arguments in the call's one spelling.
            kwargs: The others.
            spelled: The call as the user spelled it, for which the compiled stage is to be.
        """
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        theirs = jax.tree_util.tree_leaves(spelled)
        if len(leaves) != len(theirs) or any(a is not b for a, b in zip(leaves, theirs, strict=True)):
            (args, kwargs), leaves = spelled, theirs  # keyword arguments in another order are another program
        with events.attributed_to(self.core.tally):
            prepared = self.prepare(args, kwargs, leaves)
            if prepared is None:
                return self.jitted.lower(*spelled[0], **spelled[1]).compile()
            return self.as_compiled(prepared, self.jitted.trace(*args, **kwargs), spelled)

    def as_compiled(self, prepared: Any, traced: Any, spelled: Call) -> Any:
        """Return what was prepared as JAX's own stage."""
        from prejit._jax import executables

        _, call = tracing.flatten(without_statics(*spelled))
        return executables.as_compiled(prepared.loaded.executable, prepared.const_args, traced, call)

    def key_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "ComponentKey":
        """Return the key of a call's executable."""
        from prejit.stage.ladder import build_key

        with events.attributed_to(self.core.tally):
            leaves = jax.tree_util.tree_leaves((args, kwargs))
            return build_key(self._named_job(args, kwargs, leaves) or self.traced_job(args, kwargs, leaves))


def _make_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs instead of everything else under `jax.disable_jit`."""

    def python(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = unwrap(args, kwargs)
        return function(*args, **kwargs)

    return python


def _make_body(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = unwrap(args, kwargs)
        out = function(*args, **kwargs)
        return box(out) if has_static_leaves(jax.tree_util.tree_leaves(out)) else out

    return functools.update_wrapper(body, function)
