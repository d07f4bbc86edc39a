"""The disk is full, or the quota is used up."""

import errno
import os

import pytest

from prejit.errors import StoreUnavailable, StoreWarning
from prejit.store import Store
from prejit.testing import FaultyFileSystem, make_entry


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("operation", ["write_new", "replace", "make_dir"])
def test_one_warning_no_draft_and_computing_goes_on(tmp_path, operation, code):
    files = FaultyFileSystem(failing={operation: code})
    store = Store(tmp_path / "s", fs=files)

    def use():
        for number in range(3):
            assert not store.put(make_entry(number))
            assert store.get(make_entry(number).key) == make_entry(number)

    with pytest.warns(StoreWarning, match="hint: free some space") as caught:
        use()
    assert len(caught) == 1
    assert (store.stats().errors, store.stats().rejected, store.stats().entries) == (3, 3, 0)
    assert "free some space" in store.stats().problem
    left = [name for _, _, names in os.walk(tmp_path) for name in names if not name.endswith(".hits")]
    assert left == []
    files.failing.clear()
    assert store.put(make_entry(1)), "and goes on once there is room"
    assert Store(tmp_path / "s").get(make_entry(1).key) == make_entry(1)


def test_what_was_there_stays_when_its_replacement_does_not_fit(tmp_path):
    Store(tmp_path / "s").put(make_entry(1, name="old"))
    store = Store(tmp_path / "s", fs=FaultyFileSystem(failing={"write_new": errno.ENOSPC}), strict=True)
    with pytest.raises(StoreUnavailable) as caught:
        store.put(make_entry(1, name="new"))
    assert caught.value.errno == errno.ENOSPC
    assert Store(tmp_path / "s").get(make_entry(1).key).name == "old"
