"""`jax_default_matmul_precision`.

Hit by: TPU/GPU users who raise precision for one run
Right: A new entry for each precision. CPU results are equal, so the key and the lowered text are
    compared, not the numbers.
Reported: jax-ml/jax#9952; tests/config_test.py
"""

import re

import jax
import jax.numpy as jnp

from shim import component, fresh

prec = lambda: set(re.findall(r"precision = \[\w+", component(lambda x: x @ x).lower(jnp.ones((2, 2))).as_text()))
assert prec() == {"precision = [DEFAULT"}
with jax.default_matmul_precision("highest"):
    assert prec() == {"precision = [HIGHEST"}
src = "component(lambda x: x @ x)(jnp.ones((2, 2))); print(len(entries()))"
n1 = int(fresh(src))
n2 = int(fresh(src, env={"JAX_DEFAULT_MATMUL_PRECISION": "highest"}))
assert n2 > n1
