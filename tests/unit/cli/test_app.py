import sys

from typer.testing import CliRunner

from prejit.cli.app import app

LIST_IMPORTS = """
import sys
from prejit.cli.app import main
sys.argv = ["prejit", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(sys.modules), file=sys.stderr)
"""


NO_BACKEND = """
import sys
from jax._src import xla_bridge
from prejit.cli.app import main
for command in (["--help"], ["cache", "stats"], ["cache", "ls"], ["cache", "verify"], ["cache", "clear", "--yes"]):
    sys.argv = ["prejit", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
import prejit.testing
assert "pytest" not in sys.modules
assert not xla_bridge.backends_are_initialized()
"""


def test_help_names_every_command():
    shown = CliRunner().invoke(app, ["--help"]).output
    for command in ("demo", "doctor", "cache"):
        assert command in shown


def test_python_m_is_the_command(run_python):
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-m', 'prejit', *sys.argv[1:]]))"
    assert run_python(code, "--version").stdout.startswith("prejit")
    wrong = run_python(code, "no-such-command", check=False)
    assert wrong.returncode == 2
    assert "No such command" in wrong.stderr


def test_looking_at_the_store_waits_for_no_device(run_python):
    # A platform that is not there: asking for a device would fail.
    run_python(NO_BACKEND, env={"JAX_PLATFORMS": "no_such_platform"})


def test_a_wrong_variable_is_told_without_source_lines(run_python):
    wrong = run_python(LIST_IMPORTS, "cache", "stats", env={"PREJIT_STRICT": "perhaps"}).stderr
    first_line = wrong.splitlines()[0]
    assert first_line.startswith("prejit: ignoring PREJIT_STRICT")
    assert "warnings.warn" not in wrong


def test_demo_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    monkeypatch.setattr("prejit.cli.demo.command.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 2
    assert done.stderr.endswith("hint: pip install optax\n"), "which is right for a checkout and for a package"
