import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prejit import config
from prejit.cli import checks
from prejit.cli.app import app


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
