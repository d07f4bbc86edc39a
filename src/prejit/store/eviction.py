"""Which entries go when the store is over its cap: a function from values to values."""

import dataclasses
from collections.abc import Iterable

__all__ = ["Candidate", "choose_victims"]

# Some room is made at once, so that not every put evicts.
_TARGET = 0.9
# Clocks of machines that share a store differ a little; further ahead means that a clock was set back since.
_SKEW_S = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """Describe one entry that could go.

    Attributes:
        digest: Its key.
        size_bytes: Size of its file.
        last_used: Unix time of its last use in seconds.
        is_fresh: This process published or read it a moment ago: it goes only when nothing else is left.
        is_pinned: It is being published: it never goes.
    """

    digest: str
    size_bytes: int
    last_used: float
    is_fresh: bool = False
    is_pinned: bool = False


def choose_victims(candidates: Iterable[Candidate], cap_bytes: int, *, now: float) -> list[Candidate]:
    """Choose what to evict, least recently used first.

    Args:
        candidates: Every entry of the store.
        cap_bytes: What the store may hold.
        now: Unix time in seconds. A last use a little ahead of it counts as now; one far ahead counts as long ago,
            for it would keep its entry for ever.

    Returns:
        The entries to remove; none when the store is within its cap. Afterwards it is, unless what is pinned alone is
        larger.

    Example:
        >>> old, new = Candidate("a", 60, 1.0), Candidate("b", 60, 2.0)
        >>> [victim.digest for victim in choose_victims([new, old], 100, now=3.0)]
        ['a']
    """
    everything = list(candidates)
    total_bytes = sum(candidate.size_bytes for candidate in everything)
    if total_bytes <= cap_bytes:
        return []
    victims: list[Candidate] = []
    order = sorted(
        (candidate for candidate in everything if not candidate.is_pinned),
        key=lambda candidate: (candidate.is_fresh, _credible(candidate.last_used, now), candidate.digest),
    )
    for candidate in order:
        if total_bytes <= (cap_bytes if candidate.is_fresh else cap_bytes * _TARGET):
            break
        victims.append(candidate)
        total_bytes -= candidate.size_bytes
    return victims


def _credible(last_used: float, now: float) -> float:
    return min(last_used, now) if last_used <= now + _SKEW_S else 0.0
