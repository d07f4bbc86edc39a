"""Entry compiled for another CPU or GPU model.

Hit by: shared home directories on mixed clusters, container images with a baked-in cache
Right: Machine code is keyed by the full feature set of the CPU. Another CPU is a quiet miss.
Reported: jax-ml/jax#38445 and openxla/xla#44565 (too strict), vllm-project/vllm#41871 (too lax:
    sm_120 vs sm_121), local-inference-lab/b12x PR #88,
    https://numba.readthedocs.io/en/stable/developer/caching.html
"""

import os

from shim import fresh

src = "print(round(float(component(lambda x: jnp.sin(x) * 3)(1.0)), 4), len([e for e in entries() if '_lambda' in e]))"
base = os.environ["XLA_FLAGS"]
assert fresh(src, env={"XLA_FLAGS": base}) == "2.5244 1"
assert fresh(src, env={"XLA_FLAGS": base}) == "2.5244 1"  # same machine: hits
assert fresh(src, env={"XLA_FLAGS": base + " --xla_cpu_max_isa=SSE4_2"}) == "2.5244 2"  # stands for another CPU
