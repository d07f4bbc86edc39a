"""Ctrl-C while the pieces of a program compile: a real SIGINT to a real process, in the middle of compiles that go on.

XLA's compiles can't be stopped, so what is tested is that nobody waits for them: not the call, not the process.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent


# The promise is two seconds, of which an idle machine needs one. This one may be busy, and the compiles take minutes.
LONGEST_S = 15.0

PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had its background jobs ignore it
from inside import *
from prejit._jax import tracing
from prejit.stage.job import TracedJob
from prejit.stage.together import prepare_together

@jax.jit
def layer(x, i):
    mean = x.mean(-1, keepdims=True)
    x = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return jnp.tanh(x * i + jnp.sort(x, -1)) @ jnp.eye(x.shape[-1])

def chain(n, k):
    def run(x):
        for i in range(n):
            x = layer(x, i + 1.0)
        return x + k
    return run

class Job(TracedJob):
    def lower(self):
        if self.lowered is None and hook is not None:
            hook()
        return super().lower()

def jobs(n, count):
    x = np.ones((8, 64), F32)
    return [Job(tracing.open_traced(jax.jit(chain(n, k)).trace(x)), [x], f"chain_{k}") for k in range(count)]

def tell(line):
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()

def tell_when(condition):
    # To the one who interrupts.
    def watch():
        while not condition():
            time.sleep(0.01)
        tell("NOW")
    threading.Thread(target=watch, daemon=True).start()

hook = None
start = since()
compiling = lambda: start()["lowerings"] >= 2
prejit.configure(compile_threads=2)
"""


@pytest.fixture
def interrupted(tmp_path):
    """Run a program until it says NOW, interrupt it, and tell how it ended and how long that took."""
    started = []

    def run(code, *, env=None, after_s=0.5):
        environment = os.environ | {
            "PREJIT_CACHE_DIR": str(tmp_path / "store"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(env or {}),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + code],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(process)
        first = process.stdout.readline()
        assert first == b"NOW\n", first + process.communicate()[1]
        time.sleep(after_s)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
        process.took_s = time.monotonic() - sent
        process.out, process.err = out.decode(), err.decode()  # as they are: text mode would change carriage returns
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


TROUBLE = ("terminate", "Fatal", "FATAL", "core dumped", "pure virtual", "Exception ignored", "Error in", "leaked")
LONG = "tell_when(compiling)\nwork = jobs(2000, 3)\n"
CALL = "prepare_together(work, name='program')\n"
CATCH = f"try:\n    {CALL}except KeyboardInterrupt:\n    tell('CAUGHT')\n"
ENDS = {
    "unhandled": (CALL, -signal.SIGINT),
    "exit": (CATCH + "sys.exit(3)", 3),
    "another error": (CATCH + "raise KeyError", 1),
    "the end": (CATCH, 0),
}


def assert_clean(process, store_files):
    assert not any(text in process.err for text in TROUBLE), process.err
    assert set(store_files()) <= {"entry", "hits"}, "no drafts, locks or damaged files"


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_ctrl_c_ends_the_process_while_xla_compiles(end, interrupted, store_files, child):
    code, status = ENDS[end]
    done = interrupted(LONG + "import atexit\natexit.register(tell, 'BYE')\n" + code)
    assert done.returncode == status, done.err
    assert_clean(done, store_files)
    assert done.out.split() == (["BYE"] if end == "unhandled" else ["CAUGHT", "BYE"]), (
        "exit hooks ran, output is flushed"
    )
    assert ("KeyboardInterrupt" in done.err) == (end == "unhandled")
    assert done.took_s < LONGEST_S
    # What was at work was not finished, and does not keep the next one waiting.
    later = child(f"{PROGRAM}n = since()\ngot = prepare_together(jobs(2, 3), name='p')\nreport(n=n(), got=len(got))")
    assert (later.got, later.n["compiles"]) == (3, 3)


def test_compiles_that_are_ready_while_the_interpreter_goes_down_end_nothing(interrupted, store_files):
    """Their threads then want the interpreter's lock, which there is no more."""
    code = """
import types
class Slow:
    def __init__(self):
        self.sleep = time.sleep
    def __del__(self):
        self.sleep(4)  # as if there were much to clear; without the lock
sys.modules["late"] = types.ModuleType("late")
sys.modules["late"].slow = Slow()
tell_when(compiling)
work = jobs(100, 3)
"""
    done = interrupted(code + CALL, after_s=0.0)
    assert done.returncode == -signal.SIGINT, done.err
    assert_clean(done, store_files)


@pytest.mark.parametrize(
    ("what", "hook"),
    {
        "python": "while True: time.sleep(0.01)",
        "code that can't be interrupted": "time.sleep(60)",
    }.items(),
)
def test_ctrl_c_ends_the_process_while_others_lower(what, hook, interrupted, store_files):
    code = f"""
are_in = []
def hook():
    are_in.append(1)
    {hook}
tell_when(lambda: len(are_in) == 2)
work = jobs(2, 3)
"""
    done = interrupted(code + CALL)
    assert done.returncode == -signal.SIGINT, done.err
    assert_clean(done, store_files)
    assert done.took_s < LONGEST_S


def test_a_program_that_goes_on_is_answered_by_what_it_left(interrupted, store_files):
    code = """
tell_when(compiling)
work = jobs(60, 4)
try:
    prepare_together(work, name="program")
except KeyboardInterrupt:
    pass
else:
    raise SystemExit("there was time to compile it all")
first = start()["compiles"]
again = jobs(60, 4)
got = prepare_together(again, name="program")
n = start()
n = {name: n[name] for name in ("compiles", "lowerings", "misses", "store_errors")}
tell(json.dumps([first, [type(one).__name__ for one in got], n, threading.active_count()]))
"""
    done = interrupted(code, after_s=0.0)
    assert done.returncode == 0, done.err
    assert done.err == ""
    n = {"compiles": 4, "lowerings": 4, "misses": 4, "store_errors": 0}
    first, *rest = json.loads(done.out)
    assert first < 4
    assert rest[:2] == [["Prepared"] * 4, n], "each was compiled once, by whomever"
    assert_clean(done, store_files)


def test_the_progress_line_is_wiped(interrupted, store_files):
    done = interrupted(LONG + CALL, env={"PREJIT_PROGRESS": "on"}, after_s=2.0)
    assert done.returncode == -signal.SIGINT
    line, _, rest = done.err.rpartition("\r")
    assert "prejit: program: 0 of 3 done, compiling chain_" in line
    assert line.endswith(" ")
    assert rest.startswith("Traceback")
    assert "prejit:" not in rest
    assert_clean(done, store_files)


def test_one_compile_in_the_callers_thread(interrupted, store_files):
    """JAX of some versions lets Ctrl-C end the waiting for it, and XLA goes on."""
    done = interrupted("tell_when(lambda: start()['lowerings'])\nwork = jobs(100, 1)\n" + CALL)
    assert done.returncode == -signal.SIGINT, done.err
    assert_clean(done, store_files)
