"""The command on small checkouts: crashes, hangs, what the replacement reaches, and what stops a comparison."""

import json
import textwrap
import tomllib
from importlib import metadata
from pathlib import Path

import jax_tests
import pytest

MARKED = """
    import functools

    import jax

    original = jax.jit


    def jit(fun, **kwargs):
        jitted = original(fun, **kwargs)
        jitted.is_marked = True
        return jitted
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Make a directory that looks like a JAX checkout: `checkout(test_module, version=None)` -> its path."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "marked.py").write_text(textwrap.dedent(MARKED))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))

    def make(tests, version=None):
        root = tmp_path / "checkout"
        (root / "jax").mkdir(parents=True)
        # Never imported: the installed JAX runs.
        (root / "jax" / "__init__.py").write_text("raise ImportError('this is the checkout')\n")
        (root / "jax" / "version.py").write_text(f'_version = "{version or metadata.version("jax")}"\n')
        (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
        (root / "tests").mkdir()
        (root / "tests" / "some_test.py").write_text(textwrap.dedent(tests))
        return root

    return make


@pytest.fixture
def compare(tmp_path, capsys):
    """Run the command: `compare(checkout, *arguments)` -> exit code, output, report."""

    def run(checkout, *arguments):
        report = tmp_path / "report.json"
        command = [str(checkout), "tests/some_test.py", "--replacement=marked:jit", f"--json={report}", *arguments]
        status = jax_tests.main(command)
        files = json.loads(report.read_text())["files"] if report.exists() else {}
        return status, "".join(capsys.readouterr()), files.get("tests/some_test.py")

    return run


@pytest.mark.slow
def test_each_end_of_a_test_is_reported_as_what_it_was(checkout, compare):
    root = checkout(
        """
        import ctypes, os, signal, time, unittest
        import jax
        from jax import jit

        REPLACED = hasattr(jit(lambda: 0), "is_marked")

        class EndsTest(unittest.TestCase):
            def test_passes(self): pass
            def test_skips(self): self.skipTest("no reason")
            @unittest.expectedFailure
            def test_fails_as_expected(self): raise ValueError
            def test_fails_always(self): raise ValueError
            def test_fails(self): assert not REPLACED
            def test_fails_in_a_subtest(self):
                with self.subTest("one"):
                    assert not REPLACED
            def test_crashes(self):
                if REPLACED: os.kill(os.getpid(), signal.SIGSEGV)
            def test_hangs_in_python(self):
                if REPLACED: time.sleep(600)
            def test_hangs_with_the_lock(self):
                if REPLACED: ctypes.PyDLL(None).sleep(600)
        """
    )
    status, output, report = compare(root, "--timeout-s=4")
    assert status == 1
    prefix = "tests/some_test.py::EndsTest::test_"
    assert set(report["plain"]["collected"]) == set(report["replaced"]["collected"])
    plain = {test.removeprefix(prefix): outcome["kind"] for test, outcome in report["plain"]["outcomes"].items()}
    assert plain.pop("fails_always") == "failed"
    assert {plain.pop("skips"), plain.pop("fails_as_expected")} == {"skipped"}
    assert set(plain.values()) == {"passed"}
    replaced = {test.removeprefix(prefix): outcome["kind"] for test, outcome in report["replaced"]["outcomes"].items()}
    assert replaced == {
        "passes": "passed",
        "skips": "skipped",
        "fails_as_expected": "skipped",
        "fails_always": "failed",
        "fails": "failed",
        "fails_in_a_subtest": "failed",
        "crashes": "crashed",
        "hangs_in_python": "hung",
        "hangs_with_the_lock": "hung",
    }
    assert "Segmentation fault" in report["replaced"]["outcomes"][f"{prefix}crashes"]["text"]
    assert "5 pass without the replacement and not with it" in output
    assert f"crashed: Fatal Python error: Segmentation fault\n      {prefix}crashes" in output


REACH = """
    import inspect
    import jax
    import jax._src.api
    import jax._src.test_util as jtu
    from jax import jit
    from jax._src import api
    from jax._src.api import jit as private

    def is_marked(jit): return hasattr(jit(lambda: 0), "is_marked")

    def test_everything_a_test_can_name():
        assert not any(map(is_marked, [jax.jit, jit, api.jit, private, jtu.JIT_IMPLEMENTATION[0]]))

    def test_what_jax_itself_calls():
        module = type(jax)("jax._src.imported_late")
        exec("from jax import jit\\nmine = jit(lambda: 0)", vars(module))
        assert not hasattr(module.mine, "is_marked")

    def test_jax_is_the_installed_one():
        assert "checkout" not in inspect.getfile(jax)
"""


@pytest.mark.slow
def test_the_replacement_is_everywhere_but_in_jax(checkout, compare):
    status, output, report = compare(checkout(REACH), "-n1")
    assert status == 1
    replaced = {test.partition("::")[2]: outcome["kind"] for test, outcome in report["replaced"]["outcomes"].items()}
    assert replaced == {
        "test_everything_a_test_can_name": "failed",
        "test_what_jax_itself_calls": "passed",
        "test_jax_is_the_installed_one": "passed",
    }
    assert "1 unknown difference" in output


def test_everywhere_spares_nobody(checkout, compare):
    _, _, report = compare(checkout(REACH), "-n1", "--everywhere", "--only-replaced", "-k=itself")
    assert [outcome["kind"] for outcome in report["replaced"]["outcomes"].values()] == ["failed"]


def test_a_known_difference_is_good(checkout, compare, tmp_path):
    known = tmp_path / "known.toml"
    known.write_text('[[known]]\ntests = "*::test_everything_*"\nreason = "It is what we replace."\n')
    root = checkout(REACH)
    status, output, _ = compare(root, f"--known={known}", "-n1")
    assert status == 0
    assert "It is what we replace." in output
    plain = tmp_path / "plain.json"
    (tmp_path / "report.json").rename(plain)
    status, output, report = compare(root, f"--known={known}", "-n1", f"--plain-from={plain}", "--warm")
    assert status == 0
    assert output.count("It is what we replace.") == 2
    assert "nothing fails any more" not in output
    assert set(report) == {"plain", "replaced", "warm"}


def test_another_version_is_refused(checkout, compare):
    status, output, report = compare(checkout("", version="0.0.1"))
    assert (status, report) == (2, None)
    assert f"the checkout is JAX 0.0.1, installed is JAX {metadata.version('jax')}" in output


def test_what_is_no_checkout_is_refused(tmp_path, compare):
    status, output, _ = compare(tmp_path)
    assert status == 2
    assert "is no JAX checkout" in output


def test_a_file_without_tests_is_refused(checkout, compare):
    status, output, _ = compare(checkout(""), "--only-replaced", "-n1")
    assert status == 2
    assert "pytest ran no tests" in output


def test_a_module_that_fails_to_import_with_the_replacement_only_is_told(checkout, compare):
    root = checkout(
        """
        import jax
        assert not hasattr(jax.jit(lambda: 0), "is_marked"), "refused"
        def test_something(): pass
        """
    )
    status, output, _ = compare(root, "-n1")
    assert status == 1
    assert "could not be imported" in output
    assert "1 found by pytest without the replacement only" in output


def test_every_known_difference_is_in_the_docs():
    root = Path(__file__).parents[3]
    page = (root / "docs" / "reference" / "jax-tests.md").read_text()
    known = tomllib.loads((root / "tools" / "jax_tests_known.toml").read_text())["known"]
    assert [entry["tests"] for entry in known if ".".join(entry["tests"].split("::")[1:]) not in page] == []
