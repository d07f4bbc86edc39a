"""`XLA_FLAGS` and optimisation levels: those that matter, those that do not.

Hit by: users toggling fast-math, dump flags or determinism flags
Right: Dump flags hit; numerics and optimisation flags miss.
Reported: jax-ml/jax PR #8090, PR #22624; pytorch/pytorch PR #117888; tests/cache_key_test.py
    `test_xla_flags`
"""

import os

from shim import SCRATCH, fresh

src = "component(lambda x: jnp.exp(x) / 3)(jnp.ones(4)); print(len([e for e in entries() if '_lambda' in e]))"
base = os.environ["XLA_FLAGS"]
assert fresh(src, env={"XLA_FLAGS": base}) == "1"
assert fresh(src, env={"XLA_FLAGS": base + f" --xla_dump_to={SCRATCH}/dump"}) == "1"  # same key
assert fresh(src, env={"XLA_FLAGS": base + " --xla_cpu_enable_fast_math=true"}) == "2"  # new key
assert fresh(src, env={"XLA_FLAGS": base, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}) == "3"  # new key
