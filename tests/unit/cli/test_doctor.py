import errno
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prejit import config
from prejit.cli import checks
from prejit.cli.app import app
from prejit.store import Store
from prejit.testing import make_entry


@pytest.fixture(autouse=True)
def _settings_are_restored():
    yield
    config.reset()


def findings_of(iterator):
    return {finding.subject: finding for finding in iterator}


def doctor(**environment):
    done = CliRunner().invoke(app, ["doctor", "--json"], env=environment)
    report = json.loads(done.stdout)
    assert done.exit_code == (0 if report["is_well"] else 1)
    return {finding["subject"]: finding for finding in report["findings"]}


def test_a_fresh_place_is_well_and_nothing_is_made(tmp_path):
    found = doctor(PREJIT_CACHE_DIR=str(tmp_path / "new" / "store"))
    assert found["store"]["status"] == "ok"
    assert "made at its first use" in found["store"]["seen"]
    assert list(tmp_path.iterdir()) == []
    assert "cpu" in found["devices"]["seen"]


def test_people_get_hints(tmp_path):
    tmp_path.chmod(0o777)
    done = CliRunner().invoke(app, ["doctor"], env={"PREJIT_CACHE_DIR": str(tmp_path)})
    assert done.exit_code == 1
    assert f"store: chmod go-w {tmp_path}" in done.stdout
    assert "wrong" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("mode", "reason"), [(0o777, "writable by others"), (0o770, "writable by its group")])
def test_a_directory_that_others_can_write_is_wrong(tmp_path, mode, reason):
    tmp_path.chmod(mode)
    found = findings_of(checks.check_store(config.Settings(cache_dir=tmp_path)))["store"]
    assert (found.status, found.hint) == ("wrong", f"chmod go-w {tmp_path}")
    assert reason in found.seen


def test_a_file_in_the_place_of_the_directory_is_wrong(tmp_path):
    path = tmp_path / "store"
    path.write_text("")
    assert findings_of(checks.check_store(config.Settings(cache_dir=path)))["store"].status == "wrong"


def test_a_missing_directory_below_a_file_is_wrong(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "store"
    assert findings_of(checks.check_store(config.Settings(cache_dir=path)))["store"].status == "wrong"


def test_a_missing_directory_to_read_only_is_wrong(tmp_path):
    settings = config.Settings(cache_dir=tmp_path / "store", read_only=True)
    assert findings_of(checks.check_store(settings))["store"].status == "wrong"


def test_a_directory_that_refuses_writing_is_wrong(tmp_path):
    tmp_path.chmod(0o500)
    # Permission bits do not bind root; no one makes files in /proc.
    path = Path("/proc") if os.access(tmp_path, os.W_OK) else tmp_path
    if not path.is_dir():
        pytest.skip("no directory here refuses this user")
    found = findings_of(checks.check_store(config.Settings(cache_dir=path)))["store writing"]
    assert (found.status, bool(found.hint)) == ("wrong", True)


def test_memory_only_is_a_note():
    assert findings_of(checks.check_store(config.Settings(cache_dir=None)))["store"].status == "note"


def test_read_only_is_a_note(tmp_path):
    found = findings_of(checks.check_store(config.Settings(cache_dir=tmp_path, read_only=True)))
    assert found["store writing"].status == "note"
    assert list(tmp_path.iterdir()) == []


def test_damaged_entries_are_noted_and_left_alone(tmp_path):
    store = Store(tmp_path)
    for number in range(3):
        store.put(make_entry(number))
    assert "store entries" not in findings_of(checks.check_store(config.Settings(cache_dir=tmp_path)))
    damaged = next(tmp_path.rglob("*.entry"))
    damaged.write_bytes(b"garbage")
    found = findings_of(checks.check_store(config.Settings(cache_dir=tmp_path)))["store entries"]
    assert (found.status, found.hint) == ("note", "prejit cache verify")
    assert found.seen.startswith("1 of 3 are damaged")
    assert damaged.read_bytes() == b"garbage"


@pytest.mark.parametrize(
    ("wrong", "notes", "says"), [(0, 0, "all is well"), (0, 1, "nothing is wrong, 1 to note"), (2, 1, "2 wrong")]
)
def test_all_is_well_only_if_there_is_nothing_to_mend(monkeypatch, wrong, notes, says):
    found = [checks.Finding("a", "wrong", "")] * wrong + [checks.Finding("b", "note", "")] * notes
    monkeypatch.setattr(checks, "run_checks", lambda: [checks.Finding("c", "ok", ""), *found])
    assert CliRunner().invoke(app, ["doctor"]).stdout.splitlines()[-1] == says


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_told_to_be_made_writable(tmp_path, code):
    error = OSError(code, os.strerror(code))
    full = checks.Finding("store room", "wrong", "0 B free", "free some space")
    assert checks._refused_writing(tmp_path, error, full).hint == ""
    roomy = checks.Finding("store room", "ok", "9 GB free")
    assert "quota" in checks._refused_writing(tmp_path, error, roomy).hint
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert f"make {tmp_path} writable" in checks._refused_writing(tmp_path, denied, full).hint


def test_wrong_variables_are_told():
    found = list(checks.check_settings({"PREJIT_MAX_SIZ": "1", "PREJIT_STRICT": "perhaps"}))
    wrong = [finding for finding in found if finding.status == "wrong"]
    assert len(wrong) == 2
    assert any("PREJIT_MAX_SIZE" in finding.hint for finding in wrong)


def test_disabled_is_a_note():
    assert findings_of(checks.check_settings({"PREJIT_DISABLE": "1"}))["enabled"].status == "note"


def test_settings_of_jax_that_matter_are_noted():
    import jax

    with jax.debug_nans(True):
        assert findings_of(checks.check_jax())["jax_debug_nans"].status == "note"
    assert "jax_debug_nans" not in findings_of(checks.check_jax())


def test_a_package_that_is_missing_or_too_old_is_wrong():
    from packaging.requirements import Requirement

    assert checks._check_package(Requirement("no-such-package-anywhere>=1")).status == "wrong"
    too_old = checks._check_package(Requirement("numpy>=99"))
    assert too_old.status == "wrong"
    assert too_old.hint == "pip install 'numpy>=99'"
    assert checks._check_package(Requirement("numpy")).status == "ok"
