"""What a call looks like: binding, treedef, types of the leaves, static values.

Knows nothing of keys' digests, stores or executables. Invariant: two calls that `jax.jit` would answer with different
programs never look alike, and two spellings of one call never look different.
"""
