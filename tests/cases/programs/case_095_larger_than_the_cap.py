"""Entry larger than the cap, and unreachable remote store.

Hit by: large models with small caps; laptops off the network
Right: Compute anyway, with one warning at most; an entry above the cap is not kept and evicts
    nothing.
Reported: tests/lru_cache_test.py `test_max_size`; jax-ml/jax#22364 (hang on a wrong bucket path),
    uwplasma/vmex PR #142 (caps)
"""

from shim import SCRATCH, entries, entry_files, fresh

src = "t = time.time(); v = float(component(lambda x: jnp.sin(x) * 3)(1.0)); print(round(v, 4), time.time() - t < 60)"
small = "v = component(lambda x: x + 1, name='small')(1.0)"
open(SCRATCH + "/plainfile", "w").close()
fresh(small)
kept = entry_files()
assert kept
assert fresh(src, env={"PREJIT_MAX_SIZE": "100"}) == "2.5244 True"
assert not [e for e in entries() if "_lambda" in e]
assert entry_files() == kept  # what is too large evicts nothing
assert fresh(src, cache=SCRATCH + "/plainfile/bucket") == "2.5244 True"  # a mount that is not there
assert fresh.err.count("StoreWarning") == 1
assert fresh(src, cache="") == "2.5244 True" and not fresh.err  # no directory at all: memory only
assert fresh(src) == "2.5244 True" and [e for e in entries() if "_lambda" in e]
