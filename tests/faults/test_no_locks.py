"""File locks that do not work, as on NFS without a lock daemon, Lustre and FUSE buckets."""

import errno
import os
import sys

import pytest

from prejit.store import Store
from prejit.testing import BrokenLocks, make_entry

CODES = [errno.ENOLCK, errno.EOPNOTSUPP, errno.ESTALE]


@pytest.mark.parametrize("code", CODES)
def test_everything_works_and_nobody_waits(tmp_path, code):
    store = Store(tmp_path / "s", locks=BrokenLocks(code), max_size=10_000, memory_max_size=0)
    for number in range(10):
        with store.claim(make_entry(number).key, 600.0) as claim:
            assert (claim.owned, claim.reason) == (False, "unsupported")
            assert store.put(make_entry(number, size_bytes=1500))
        assert store.lookup(make_entry(number).key).is_hit
    assert store.stats().evictions > 0
    assert store.gc().locks == 0
    assert store.stats().errors == 0


@pytest.mark.parametrize("code", CODES)
def test_flock_that_fails_before_anything_is_imported(tmp_path, run_python, code):
    program = f"""
import fcntl, sys
def broken(*args, **kwargs):
    raise OSError({code}, "no locks available")
fcntl.flock = fcntl.lockf = broken
from prejit.store import Store
from prejit.testing import make_entry
store = Store(sys.argv[1], max_size=100_000)
with store.claim(make_entry(1).key, 600.0) as claim:
    print(claim.reason, store.put(make_entry(1)), store.get(make_entry(1).key) == make_entry(1))
"""
    done = run_python(program, tmp_path / "s", env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.split() == ["unsupported", "True", "True"]
    assert done.stderr == ""
