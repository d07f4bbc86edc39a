"""Bit flips and garbage in an entry or artifact.

Hit by: flaky disks, truncated downloads, transparent proxies
Right: The digest of the whole entry is checked before any parser sees the bytes. A bad entry is
    counted, compiled again and repaired; a bad artifact is one clear exception.
Reported: uwplasma/vmex PR #142 (checksums protect XLA), frerich/clcache#263
"""

import numpy as np

from shim import SCRATCH, cleared, component, entry_files, fresh, needs_export, one, to_artifact

K = np.arange(1.0, 65.0, dtype=np.float32)
f = component(lambda x: (x * K).sum())
want = float(K.sum())
assert float(f(1.0)) == want
paths = entry_files()
assert len(paths) >= 2  # the executable and the module
for path in paths:
    with open(path, "rb") as file:
        good = file.read()
    cut = [good[:n] for n in (0, 1, 87, len(good) - 8)]
    flipped = [good[:p] + bytes([good[p] ^ 1]) + good[p + 1 :] for p in range(0, len(good), len(good) // 12)]
    for bad in (*cut, *flipped, good + good):
        with open(path, "wb") as file:
            file.write(bad)
        cleared()
        assert float(f(1.0)) == want
        with open(path, "wb") as file:
            file.write(good)

needs_export()

good = to_artifact(lambda x: (x * K).sum(), one)
with open(SCRATCH + "/good.bin", "wb") as file:
    file.write(good)
run = """
b = bytearray(open('good.bin', 'rb').read()); i = int(os.environ['POS']); b[i] ^= 1
try: print(float(from_artifact(b)(one)))
except Exception as e: print('refused', type(e).__name__)
"""
bad = {p: fresh(run, env={"POS": str(p)}, check=False) for p in range(200, len(good), len(good) // 12)}
assert all(v.startswith("refused") or v == str(want) for v in bad.values()), bad
