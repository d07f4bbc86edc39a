"""Memory layout and byte order of NumPy inputs and constants.

Hit by: slices, transposes, Fortran order, data read from big-endian files
Right: As asserted; big-endian input is refused with JAX's own TypeError, warm or cold. Captured
    arrays differ by shape and order, not only by bytes.
Reported: tests/jax_jit_test.py (`test_device_put_on_numpy_arrays`, masked arrays); no specific
    thread
"""

import numpy as np

from shim import component, raises

A = np.arange(6.0, dtype=np.float32).reshape(2, 3)
f = component(lambda x: x)
assert np.array_equal(f(A.T[::-1]), A.T[::-1]) and np.array_equal(f(np.asfortranarray(A)), A)
g1, g2 = component(lambda x: x + A.T), component(lambda x: x + A.reshape(3, 2))  # same bytes, other meaning
assert not np.array_equal(g1(0.0), g2(0.0)) and np.array_equal(g1(0.0), A.T)
raises(ValueError, lambda: f(np.ma.array([1.0, 2.0], mask=[0, 1])))
for big in (A.astype(">f4"), A.astype(">i4")):  # f is warm for native float32 of this shape
    raises(TypeError, lambda: f(big))
    raises(TypeError, lambda: component(lambda x: x * 2)(big))  # and refused cold
