"""The only place that touches `jax._src`, jaxlib or JAX API that depends on the version.

It must not know about keys, stores or components. Invariant: whatever it returns means the same on every supported JAX.
"""
