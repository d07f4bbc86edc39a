"""A segment of a program on its way to an executable: known by its digest, lowered only when nobody has it."""

from collections.abc import Callable, Sequence
from typing import Any

from prejit._jax import pieces, tracing
from prejit.key import ComponentKey, Ingredient, environment_ingredients, program_digest
from prejit.signature.describe import aval_text
from prejit.stage.job import Kind, donation

__all__ = ["SegmentJob"]


class SegmentJob:
    """Be one segment, for `ladder.prepare`.

    Its inputs and outputs are whole arrays on one device; which device decides where it is loaded, not what it is.

    Args:
        name: Display name.
        digest: What identifies the segment: its program, or that of the whole with the segment's place in it.
        in_avals: Types of its inputs.
        out_avals: Types of its outputs.
        donated: Which inputs are donated.
        device: Where it runs.
        closed_jaxpr: Gives the segment itself, when it has to be lowered.
        compiler_options: What is passed to XLA for this program.
        reason: What keeps the segment from being stored, if anything.
    """

    def __init__(
        self, name: str, digest: str, in_avals: Sequence[Any], out_avals: Sequence[Any], donated: Sequence[bool],
        device: Any, closed_jaxpr: Callable[[], Any], compiler_options: Sequence[tuple[str, Any]] = (),
        reason: str | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.digest = digest
        self.in_avals = tuple(in_avals)
        self.out_avals = tuple(out_avals)
        self.donated = tuple(donated)
        self.device = device
        self.lowered: Any = None
        self._closed_jaxpr = closed_jaxpr
        self._compiler_options = tuple(compiler_options)
        self._reason = reason

    @classmethod
    def guard(cls, device: Any) -> "SegmentJob":
        """Make the job of an empty program, which stands behind the C++ dispatch of linked ones."""
        empty = pieces.close((), (), (), "guard")
        return cls("guard", program_digest(empty).digest, (), (), (), device, lambda: empty)

    def why_not(self) -> str | None:
        """Say what keeps the segment from being stored, as far as that is known without lowering."""
        return self._reason

    def key(self, kind: Kind) -> ComponentKey:
        """Build the key of the executable or the module."""
        return ComponentKey(
            identity=(Ingredient("program", self.digest), Ingredient("kind", kind)),
            signature=(
                Ingredient("in_avals", ", ".join(map(aval_text, self.in_avals))),
                *donation(self.donated),
            ),
            environment=environment_ingredients(
                kind,
                platform=self.device.platform,
                devices=(self.device,),
                compiler_options=dict(self._compiler_options) or None,
            ),
        )

    def lower(self) -> Any:
        """Lower, once."""
        if self.lowered is None:
            self.lowered = pieces.lower_piece(
                self._closed_jaxpr(), self.donated, self.name, self.device, self._compiler_options
            )
        return self.lowered

    def arguments(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return what loading or compiling needs of the segment."""
        return {
            "in_avals": self.in_avals,
            "out_avals": self.out_avals,
            "debug_info": tracing.unnamed_arguments(self.name, len(self.in_avals)),
            "device": self.device,
            "compiler_options": self._compiler_options,
        }

    def extra_meta(self) -> dict[str, Any]:
        """Return what an entry keeps besides the description of the executable."""
        return {
            "in_avals": [aval_text(aval) for aval in self.in_avals],
            "out_avals": [aval_text(aval) for aval in self.out_avals],
        }

    def out_tree(self, meta: dict[str, Any]) -> Any:
        """Return nothing: results are flat."""
        return None

    def consts(self) -> list[Any]:
        """Return nothing: constants are inputs."""
        return []

    def before_lowering(self) -> None:
        """Do nothing: a segment can always be kept under its program."""

    def on_loaded(self, meta: dict[str, Any]) -> None:
        """Do nothing: the program is the same, or its key would not be."""
