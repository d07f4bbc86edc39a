"""`prejit.component`: a function that is compiled once, kept in the store, and behaves as an inner `jax.jit`.

Knows nothing of files or of native code. Invariant: a component gives what `jax.jit` of the same function gives,
values, types, effects and errors, whatever the store does.
"""

from prejit.component.decorator import component
from prejit.component.wrapper import CacheInfo, Component

__all__ = ["CacheInfo", "Component", "component"]
