"""Shared directory without working locks.

Hit by: NFS with `nolock`, Lustre, FUSE buckets
Right: Being right rests on write-to-temp and atomic rename, never on a lock.
Reported: apache/tvm-ffi#667, ccache/ccache#68, tox-dev/filelock PR #669, lock discussion in
    hail-is/hail PR #3973
"""

import errno

from shim import fresh

src = """
import fcntl
def broken(*a, **k): raise OSError(%d, 'no locks available')
fcntl.flock = fcntl.lockf = broken
print(round(float(component(lambda x: jnp.cos(x) * 5)(1.0)), 4))
"""
for code in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ESTALE):
    assert fresh(src % code) == "2.7015"
assert fresh(src % errno.ENOLCK, env={"PREJIT_MAX_SIZE": "1000000"}) == "2.7015"
