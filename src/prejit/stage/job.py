"""A call on its way to an executable: what it is, where it runs, how it lowers.

A `TracedJob` has been traced, and its identity is the traced program. A `NamedJob` has an identity that the user gave
and is traced only when its executable is nowhere to be had.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from prejit._jax import avals, executables, pieces, tracing
from prejit._jax.shardings import describe_layout, describe_sharding, placement_token
from prejit.config import settings
from prejit.errors import KeyingError
from prejit.key import ComponentKey, Ingredient, environment_ingredients, fingerprint, program_digest, treedef_token
from prejit.key.values import value_token
from prejit.signature import trees
from prejit.signature.describe import aval_text
from prejit.signature.statics import Static
from prejit.stage.lazy import lazy
from prejit.stage.reuse import content_of, warn_of_reuse

__all__ = ["Job", "NamedJob", "NotNamedError", "TracedJob", "read_by"]

Pairs = Sequence[tuple[str, str]]
Kind = Literal["executable", "module"]


class Job(Protocol):
    """Be a call that wants an executable.

    Attributes:
        name: Display name.
        device: Where a single-device program runs.
    """

    name: str
    device: Any

    @property
    def lowered(self) -> Any:
        """The lowered program if it was lowered already, else None."""
        ...

    def why_not(self) -> str | None:
        """Say what keeps the call from being stored, as far as that is known without lowering."""
        ...

    def key(self, kind: Kind) -> ComponentKey:
        """Build the key of the executable or the module; raises KeyingError when there is none."""
        ...

    def lower(self) -> Any:
        """Lower, once."""
        ...

    def arguments(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return what loading or compiling needs of the call; `meta` is the entry's, or None after lowering."""
        ...

    def extra_meta(self) -> dict[str, Any]:
        """Return what this kind of job keeps in an entry besides the description of the executable."""
        ...

    def out_tree(self, meta: dict[str, Any]) -> Any:
        """Return the structure of the result."""
        ...

    def consts(self) -> list[Any]:
        """Return the values of the hoisted constants."""
        ...

    def before_lowering(self) -> None:
        """Raise `NotNamedError` if the call, now that it must be traced, can't be kept under this job's key."""
        ...

    def on_loaded(self, meta: dict[str, Any]) -> None:
        """Compare what was stored with what is here."""
        ...


class NotNamedError(Exception):
    """Say that a call has to be identified by its program after all."""


class TracedJob:
    """A traced call."""

    def __init__(self, program: tracing.TracedProgram, flat: Sequence[Any], name: str, explicit: Pairs = ()) -> None:
        self.program = program
        self.flat = flat
        self.name = name
        self.explicit = tuple([Ingredient(*pair) for pair in explicit])
        self._asked = self._places()
        self.devices = list(self._asked[0])
        self.device = self.devices[0]
        self.lowered: Any = None
        limit = settings().hoist_bytes
        has_options = bool(program.options or program.compiler_options)  # which lowering with more arguments would lose
        hoistable = () if has_options else program.consts
        self.hoisted = tuple([i for i, const in enumerate(hoistable) if tracing.hoistable_bytes(const) > limit])

    def _places(self) -> list[tuple[Any, ...]]:
        """Return what arguments, options and equations ask for: where it runs comes first."""
        program, flat = self.program, self.flat
        default = (tracing.default_device(),)
        given = tracing.devices_of_option(program, "in_shardings")  # where arguments are moved
        asked = tuple([] if given else tracing.devices_of(flat))
        if asked and asked != default:
            asked = tuple(tracing.devices_of(read_by(program, flat)))
        places = [*given, *([asked] if asked else []), *tracing.devices_of_option(program, "out_shardings")]
        if self.is_placed_inside:
            places += tracing.devices_inside(pieces.without_dead_code(program.closed_jaxpr)[0])
        return list(dict.fromkeys(places or [default]))

    @lazy
    def is_placed_inside(self) -> bool:
        """Whether equations ask for devices."""
        return pieces.is_placed_inside(self.program.closed_jaxpr)

    @lazy
    def in_avals(self) -> list[Any]:
        """Types of all inputs of the executable: hoisted constants, then arguments."""
        return [*[tracing.aval_of(self.program.consts[i]) for i in self.hoisted], *self.program.in_avals]

    def why_not(self) -> str | None:
        """Say what keeps the call from being stored, as far as that is known without lowering."""
        if len(self._asked) > 1:  # which JAX refuses, or sorts out
            return "arguments and shardings ask for different devices"
        return why_not_traced(self.program) or why_not_placed(self.devices)

    def lower(self) -> Any:
        """Lower, once."""
        if self.lowered is None:
            if self.hoisted:
                self.lowered = tracing.lower_with_arguments(self.program, self.hoisted, self.flat)
            else:
                self.lowered = self.program.traced.lower()
        return self.lowered

    def key(self, kind: Kind) -> ComponentKey:
        """Build the key of the executable or the module."""
        return ComponentKey(
            identity=(*self.explicit, *self._identity, Ingredient("kind", kind)),
            signature=(
                Ingredient("in_avals", ", ".join(aval_text(aval) for aval in self.program.in_avals)),
                *placement(self.flat),
                *donation(self.program.donated),
                *[Ingredient(name, option_text(name, values)) for name, values in self.program.options.items()],
            ),
            environment=environment_ingredients(
                kind,
                platform=self.device.platform,
                devices=tuple(self.devices),
                compiler_options=dict(self.program.compiler_options) or None,
            ),
        )

    @lazy
    def _identity(self) -> tuple[Ingredient, ...]:
        try:
            digest = program_digest(self.program.closed_jaxpr, hoisted_consts=self.hoisted).digest
            return (Ingredient("program", digest),)
        except KeyingError as error:
            # Not everything in the jaxpr has content that can be digested; the lowered module may have.
            lowered = self.lower()
            reason = executables.why_not_storable(lowered)
            if reason is not None:
                raise KeyingError(str(error), reason=reason) from error
            return (Ingredient("module", self._module_digest(lowered)),)

    def _module_digest(self, lowered: Any) -> str:
        """Digest a lowered module with what its text leaves out: which arguments it uses, how it is placed, its types.

        The text has no arguments that are unused, and no weak types.
        """
        around = executables.describe_lowered(lowered, self.device)
        del around["name"]
        parts = [executables.module_text(lowered), json.dumps(around, sort_keys=True).encode()]
        parts += [value_token(aval) for aval in (*self.in_avals, *self.program.out_avals)]
        return hashlib.sha256(b"".join(b"%d:" % len(part) + part for part in parts)).hexdigest()

    def arguments(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return what loading or compiling needs of the call."""
        return {
            "in_avals": self.in_avals,
            "out_avals": self.program.out_avals,
            "debug_info": self.program.debug_info,
            "device": self.device,
            "compiler_options": self.program.compiler_options,
        }

    def extra_meta(self) -> dict[str, Any]:
        """Return what an entry keeps besides the description of the executable."""
        donated = (*[False] * len(self.hoisted), *self.program.donated)
        return {
            "in_avals": [aval_text(a) for a in self.in_avals],
            "out_avals": [aval_text(a) for a in self.program.out_avals],
            "unusable": [] if self.lowered is None else executables.unusable_donations(self.lowered, donated),
        }

    def out_tree(self, meta: dict[str, Any]) -> Any:
        """Return the structure of the result."""
        return self.program.traced.out_tree

    def consts(self) -> list[Any]:
        """Return the values of the hoisted constants."""
        return [self.program.consts[i] for i in self.hoisted]

    def before_lowering(self) -> None:
        """Do nothing: a traced call can always be kept under its program."""

    def on_loaded(self, meta: dict[str, Any]) -> None:
        """Do nothing: the program is the same, or its key would not be."""


class NamedJob:
    """A call of a component whose identity the user gave: found without tracing, and traced only to be made.

    Args:
        function: The function, for comparison with the one that was stored.
        trace: Traces the call.
        args: Positional arguments in the call's one spelling, static ones wrapped.
        kwargs: The others.
        flat: Flat arguments, static ones left out.
        name: Display name.
        explicit: The identity.
        donated: Positions and names that are donated.

    Raises:
        KeyingError: The call's structure, types or static values have no content to compare.
    """

    def __init__(
        self, function: Callable[..., Any], trace: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        flat: Sequence[Any], name: str, explicit: Pairs, donated: str,
    ) -> None:  # fmt: skip
        self._function = function
        self.name = name
        self.flat = flat
        self.devices = tracing.devices_of(flat) or [tracing.default_device()]
        self.device = self.devices[0]
        self._explicit = tuple([Ingredient(*pair) for pair in explicit])
        self._donated = donated
        self._trace = trace
        self._in_avals = [tracing.aval_of(value) for value in flat]
        self._signature = self._build_signature(args, kwargs)

    def _build_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Ingredient, ...]:
        everything, treedef = tracing.flatten((args, kwargs), is_leaf=lambda node: type(node) is Static)
        paths = trees.leaf_paths(treedef)
        statics = [(n, leaf.value) for n, leaf in enumerate(everything) if type(leaf) is Static]
        return (
            Ingredient("in_avals", ", ".join(aval_text(aval) for aval in self._in_avals)),
            Ingredient("in_types", fingerprint([avals.describe_aval(aval) for aval in self._in_avals])),
            Ingredient("tree", hashlib.sha256(treedef_token(treedef, "arguments")).hexdigest()),
            Ingredient("paths", fingerprint(paths)),
            *[Ingredient(f"static {n}", fingerprint(value, f"static argument {n}")) for n, value in statics],
            *placement(self.flat),
            *([Ingredient("donated", self._donated)] if self._donated else []),
        )

    @lazy
    def _content(self) -> str | None:
        return content_of(self._function)

    @lazy
    def traced(self) -> TracedJob:
        """The same call, traced."""
        _ = self._content  # before the body runs, which may change what it reaches
        return TracedJob(tracing.open_traced(self._trace()), self.flat, self.name)

    @property
    def lowered(self) -> Any:
        """The lowered program if it was lowered already, else None."""
        return self.__dict__["traced"].lowered if "traced" in self.__dict__ else None

    def why_not(self) -> str | None:
        """Say what keeps the call from being stored, as far as that is known without lowering."""
        return why_not_placed(self.devices)

    def before_lowering(self) -> None:
        """Raise `NotNamedError` if the call can't be kept under this job's key."""
        job = self.traced
        # Large constants are arguments of the executable, and only a trace has their values.
        reason = job.why_not() or ("it closes over large constants" if job.hoisted else None)
        if reason is None and job.is_placed_inside:
            reason = "equations in it ask for devices"
        if reason is not None:
            raise NotNamedError(reason)
        try:
            self.extra_meta()
        except KeyingError as error:
            raise NotNamedError(error.reason) from error

    def on_loaded(self, meta: dict[str, Any]) -> None:
        """Compare what was stored with what is here."""
        ours, theirs = self._content, meta["function"]
        if ours is not None and theirs is not None and ours != theirs:
            warn_of_reuse(dict(self._explicit)["key"], "the one that is stored")

    def key(self, kind: Kind) -> ComponentKey:
        """Build the key of the executable or the module."""
        return ComponentKey(
            identity=(*self._explicit, Ingredient("kind", kind)),
            signature=self._signature,
            environment=environment_ingredients(kind, platform=self.device.platform, devices=tuple(self.devices)),
        )

    def lower(self) -> Any:
        """Lower, once."""
        return self.traced.lower()

    def arguments(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return what loading or compiling needs of the call."""
        if meta is None:
            return self.traced.arguments(None)
        return {
            "in_avals": self._in_avals,
            "out_avals": [avals.aval_from(described) for described in meta["out_types"]],
            "debug_info": tracing.unnamed_arguments(self.name, len(self._in_avals)),
            "device": self.device,
            "compiler_options": (),
        }

    def extra_meta(self) -> dict[str, Any]:
        """Return what an entry keeps besides the description of the executable."""
        program = self.traced.program
        return {
            **self.traced.extra_meta(),
            "out_types": [avals.describe_aval(aval) for aval in program.out_avals],
            "out_tree": trees.describe_tree(program.traced.out_tree),
            "out_paths": trees.leaf_paths(program.traced.out_tree),
            "function": self._content,
        }

    def out_tree(self, meta: dict[str, Any]) -> Any:
        """Return the structure of the result."""
        try:
            treedef = trees.tree_from(meta["out_tree"])
            if trees.leaf_paths(treedef) == meta["out_paths"]:
                return treedef
        except KeyingError as error:
            raise NotNamedError(error.reason) from error
        raise NotNamedError("a class in the result has its fields in another order now")

    def consts(self) -> list[Any]:
        """Return the values of the hoisted constants."""
        return []


def read_by(program: tracing.TracedProgram, flat: Sequence[Any]) -> list[Any]:
    """Return the arguments that a program has: JAX leaves out what nothing reads, and its placement with it."""
    if "keep_unused" in program.options:
        return list(flat)
    used = pieces.without_dead_code(program.closed_jaxpr)[2]
    return [value for value, is_used in zip(flat, used, strict=True) if is_used]


def why_not_traced(program: tracing.TracedProgram) -> str | None:
    """Say what a trace holds that can't be stored."""
    if program.effects:
        return f"effects: {', '.join(sorted(type(e).__name__ for e in program.effects))}"
    if program.is_capturing or any(isinstance(const, tracing.Tracer) for const in program.consts):
        return "it closes over a value that is being traced"
    return None


def why_not_placed(devices: Sequence[Any]) -> str | None:
    """Say what about its devices keeps a call from being stored."""
    if len({device.process_index for device in devices}) > 1:
        return "its devices belong to several processes"
    return None


def placement(flat: Sequence[Any]) -> list[Ingredient]:
    """Return where committed arguments are, as ingredients."""
    placed = [(n, placement_token(value)) for n, value in enumerate(flat)]
    return [Ingredient(f"placement of {n}", token) for n, token in placed if token]


def option_text(name: str, values: Sequence[Any]) -> str:
    """Return an argument of `jax.jit` as canonical text.

    Raises:
        KeyingError: A sharding or layout has no description.
    """
    if name in ("in_shardings", "out_shardings"):
        return json.dumps([describe_sharding(sharding) for sharding in values], sort_keys=True)
    if name in ("in_layouts", "out_layouts"):
        return json.dumps([describe_layout(layout) for layout in values], sort_keys=True)
    return value_token(values).hex() if name == "mesh" else json.dumps(values)


def donation(donated: Sequence[bool]) -> list[Ingredient]:
    """Return which flat arguments are donated, as ingredients."""
    numbers = ",".join(str(n) for n, is_donated in enumerate(donated) if is_donated)
    return [Ingredient("donated", numbers)] if numbers else []
