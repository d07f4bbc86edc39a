"""How large the demo's model and its run are."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """What one run computes; equal sizes give equal losses.

    Attributes:
        nr_layers: Transformer layers, called in a plain Python loop.
        width: Features per character position; a multiple of `nr_heads`.
        nr_heads: Attention heads.
        context: Characters that one example holds.
        batch: Examples per step.
        nr_steps: Training steps, the first one included.
        text_bytes: How much of the standard library's source is read, at most.
    """

    nr_layers: int = 12
    width: int = 128
    nr_heads: int = 4
    context: int = 64
    batch: int = 8
    nr_steps: int = 60
    text_bytes: int = 1_500_000

    def to_dict(self) -> dict[str, int]:
        """Return the fields by name, as a run's report shows them."""
        return asdict(self)


FULL = Size()
QUICK = Size(nr_layers=2, width=32, nr_heads=2, context=16, batch=4, nr_steps=6, text_bytes=100_000)
