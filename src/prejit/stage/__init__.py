"""Trace, lower, compile, serialize, load: the ladder from a stored executable down to the Python function.

Knows nothing of decorators or of how a call was spelled. Invariant: whatever the store or the backend does, the caller
gets an executable for the program that was traced, or the error that JAX itself raises for it.

The rooms above import `stage.ladder` when the first call misses: with the store and the keys behind it, it costs 60 ms,
which is more than importing prejit may add to importing jax.
"""
