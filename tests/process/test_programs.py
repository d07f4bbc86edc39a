"""Linked programs in fresh processes: what an edit compiles, what is shared, and who may call at once."""

import os

import pytest

MODEL = """
import jax, jax.numpy as jnp, numpy as np, prejit

@jax.jit
def layer(p, x):
    h = x - x.mean(-1, keepdims=True)
    h = h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-5)
    return x + jax.nn.gelu(h @ p["up"]) @ p["down"] * {scale}

def loss(ps, x):
    for p in ps:
        x = layer(p, x)
    return (x * x).mean()

def step(ps, ms, x):
    value, grads = jax.value_and_grad(loss)(ps, x)
    ms = jax.tree.map(lambda m, g: {decay} * m + g, ms, grads)
    return jax.tree.map(lambda p, m: p - 0.01 * m, ps, ms), ms, value

def start(depth, width=16):
    draw = np.random.RandomState(0).standard_normal
    ps = [{{"up": (draw((width, 4 * width)) * 0.1).astype("f"), "down": (draw((4 * width, width)) * 0.1).astype("f")}}
          for _ in range(depth)]
    return ps, jax.tree.map(np.zeros_like, ps), draw((8, width)).astype("f")
"""
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import model
depth = int(sys.argv[2])
train = prejit.jit(model.step, link="separate", donate_argnums=(0, 1))
ps, ms, x = model.start(depth)
n = since()
ps, ms, value = train(ps, ms, x)
first = bits((ps, ms, value))
done = n()
ps, ms, value = train(ps, ms, x)  # of arrays now: another kind of call, with the same executables
again = n()
for _ in range(2):
    ps, ms, value = train(ps, ms, x)
jax.block_until_ready(ps)
idle = n() == again
plan = train.plan(*model.start(depth))
report(first=first, bits=bits((ps, ms, value)), done=done, again=again, idle=idle, compiled=seen.compiled,
       parts=len(plan.parts), calls=plan.calls, is_linked=plan.is_linked)
"""


@pytest.fixture
def model(child, tmp_path):
    """Run training steps of a model in a fresh process: `model(depth=4, scale=..., decay=..., env=...)`."""

    def run(depth=4, env=None, code=RUN, **fields):
        (tmp_path / "model.py").write_text(MODEL.format(**({"scale": "1.0", "decay": "0.9"} | fields)))
        return child(code, tmp_path, depth, env=env)

    return run


def layers(report):
    return [name for name in report.compiled if name == "jit(layer)"]


def test_a_second_process_compiles_and_lowers_nothing(model):
    cold, warm = model(), model()
    assert cold.is_linked
    assert cold.parts < cold.calls
    assert cold.done["compiles"] == cold.parts + 1, "each part once, and the guard"
    assert cold.again["compiles"] == cold.done["compiles"]
    assert cold.idle, "a known call is not even a lookup"
    assert (warm.done["compiles"], warm.done["lowerings"], warm.done["misses"]) == (0, 0, 0)
    assert warm.done["loads"] == cold.done["compiles"]
    assert warm.seen["compiles"] == warm.seen["lowerings"] == 0
    assert warm.idle
    assert (warm.first, warm.bits) == (cold.first, cold.bits)
    assert cold.agrees()
    assert warm.agrees()
    plain = model(env={"PREJIT_DISABLE": "1"})
    assert plain.seen["compiles"] >= 1, "the control: without prejit both counts are there to be seen"
    assert plain.seen["lowerings"] >= 1


def test_the_number_of_executables_does_not_grow_with_the_depth(model):
    four, eight = model(depth=4), model(depth=8)
    assert four.parts == eight.parts
    assert eight.done["compiles"] <= 2, "what was compiled for four layers serves eight"
    assert layers(eight) == []
    twelve = model(depth=12)
    assert layers(twelve) == []


def test_an_edit_in_the_layer_compiles_what_it_changes(model):
    cold = model()
    edited = model(scale="1.5")
    assert edited.first != cold.first
    assert 0 < edited.done["compiles"] < cold.done["compiles"], edited.compiled
    assert set(edited.compiled) == {"jit(layer)"}, "glue and guard are the same"
    assert model(scale="1.5").done["compiles"] == 0
    back = model()
    assert back.done["compiles"] == 0
    assert back.first == cold.first


def test_an_edit_in_the_optimizer_compiles_no_layer(model):
    cold = model()
    edited = model(decay="0.8")
    assert edited.bits != cold.bits
    assert edited.done["compiles"] > 0
    assert layers(edited) == []


def test_moved_code_and_hash_seeds_compile_nothing(model):
    cold = model(env={"PYTHONHASHSEED": "1"})
    for seed in ("2", "77"):
        moved = model(env={"PYTHONHASHSEED": seed}, decay="0.9  # a comment\n\n")
        assert (moved.done["compiles"], moved.done["lowerings"]) == (0, 0)
        assert moved.bits == cold.bits


EVALUATE = """
import sys
sys.path.insert(0, sys.argv[1])
import model
evaluate = prejit.jit(lambda ps, x: model.loss(ps, x).sum(), link="separate")
other = prejit.jit(lambda ps, x: (model.layer(ps[0], model.layer(ps[1], x)), jnp.sort(x)), link="separate")
ps, _, x = model.start(3)
n = since()
value = evaluate(ps, x)
evaluated = n()
also = other(ps, x)
report(value=float(value), evaluated=evaluated, both=n(), compiled=seen.compiled)
"""


def test_two_programs_share_a_layer(model):
    first = model(code=EVALUATE)
    assert layers(first) == ["jit(layer)"], "one executable for two programs"
    assert first.both["hits"] > first.evaluated["hits"]
    second = model(code=EVALUATE)
    assert second.both["compiles"] == 0
    # A training step, which needs derivatives, in a process of its own: only these compile.
    assert second.value == first.value


COMPONENT = """
@prejit.component(link="separate")
def layer(w, x):
    return jnp.tanh(x @ w) + x * 0.5

def program(w, x):
    for _ in range(3):
        x = layer(w, x)
    return x.sum(), x

w, x = np.eye(16, dtype=F32) * F32(0.5), X[None]
n = since()
eager = layer(w, x) if sys.argv[1] == "eager" else None
out = prejit.jit(program, link=sys.argv[2])(w, x)
report(bits=bits(out), done=n(), compiled=seen.compiled)
"""


def test_components_in_programs(child):
    cold = child(COMPONENT, "program", "separate")
    warm = child(COMPONENT, "eager", "separate")
    assert "jit(layer)" in cold.compiled
    assert warm.bits == cold.bits
    assert warm.done["compiles"] <= 1, "the component by itself, unless the unit serves it too"
    whole = child(COMPONENT, "program", "inline")
    assert whole.done["compiles"] == 1
    assert child(COMPONENT, "program", "inline").done["compiles"] == 0


PLAIN_FIRST = """
def f(x):
    y = jnp.sin(x) @ x
    return jnp.cumsum(jax.nn.softmax(y * 2), 0) + jnp.sort(y, 0)

def program(x):
    return jax.vmap(f)(jnp.stack([x, x * 2])), 1.5

x = np.linspace(0, 1, 36, dtype=F32).reshape(6, 6)
out = []
for way in sys.argv[1].split(","):
    out.append(bits({"jit": jax.jit, "program": prejit.jit, "component": prejit.component}[way](program)(x)))
report(bits=out, compiled=seen.compiled)
"""


@pytest.mark.parametrize("ours", ["program", "component"])
def test_what_jax_loaded_is_not_stored_again(child, ours):
    """XLA writes out an executable that it read with some of its code missing; the entry would fail when it runs."""
    want = child(PLAIN_FIRST, "jit").bits[0]  # stored as one of JAX's own
    for ways in (f"jit,{ours}", ours, ours, f"{ours},jit", f"jit,{ours}"):
        assert child(PLAIN_FIRST, ways).bits == [want] * len(ways.split(","))


EFFECTS = """
said_here = []
@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x * 0.5

def program(w, x):
    for k in range(3):
        x = layer(w, x)
        jax.debug.callback(lambda v, k=k: said_here.append(k), x.sum(), ordered=True)
    return x

w, x = np.eye(16, dtype=F32), X[None]
n = since()
step = prejit.jit(program, link="separate")
out = step(w, x)
step(w, x)
jax.effects_barrier()
report(bits=bits(out), said_here=said_here, done=n(), compiled=seen.compiled)
"""


def test_programs_with_callbacks_keep_the_rest(child):
    cold, warm = child(EFFECTS), child(EFFECTS)
    assert cold.said_here == warm.said_here == [0, 1, 2] * 2
    assert layers(cold) == ["jit(layer)"]
    assert layers(warm) == []
    assert warm.done["misses"] == 0
    assert warm.done["compiles"] == warm.done["bypasses"] == 3
    assert warm.bits == cold.bits


# Who calls at once

THREADS = """
sys.path.insert(0, sys.argv[1])
import model
traces = []
def traced(ps, ms, x):
    traces.append(1)
    return model.step(ps, ms, x)
step = prejit.jit(traced, link="separate")
out, barrier = [], threading.Barrier(8)
def work(number):
    ps, ms, x = model.start(3)
    barrier.wait()
    for k in range(3):
        ps, ms, value = step(ps, ms, x)
    out.append(bits((ps, value)))
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
n = since()
[t.start() for t in threads]
[t.join() for t in threads]
report(out=out, done=n(), traces=len(traces), compiled=seen.compiled, parts=len(step.plan(*model.start(3)).parts))
"""


def test_eight_threads_compile_each_part_once(model, store_files):
    done = model(code=THREADS)
    assert len(done.out) == 8
    assert all(out == done.out[0] for out in done.out)
    assert done.traces == 1
    assert done.done["compiles"] == done.parts + 1
    assert set(store_files()) <= {"entry", "hits"}, "no drafts, locks or damaged files"


TOGETHER = """
number, folder = sys.argv[1:]
sys.path.insert(0, folder)
import model
meeting = folder + "/meeting"
os.makedirs(meeting, exist_ok=True)
open(f"{meeting}/{number}", "w").close()
deadline = time.monotonic() + 100
while len(os.listdir(meeting)) < 3:
    assert time.monotonic() < deadline
    time.sleep(0.01)
ps, ms, x = model.start(4)
step = prejit.jit(model.step, link="separate")
out = step(ps, ms, x)
report(bits=bits(out), compiled=seen.compiled, parts=len(step.plan(ps, ms, x).parts))
"""


def test_three_processes_compile_each_part_once(children, store_files, tmp_path):
    (tmp_path / "model.py").write_text(MODEL.format(scale="1.0", decay="0.9"))
    done = children(TOGETHER, tmp_path, n=3)
    assert len({tuple(report.bits) for report in done}) == 1
    assert sum(len(report.compiled) for report in done) == done[0].parts + 1
    assert set(store_files()) <= {"entry", "hits"}


FORK = """
sys.path.insert(0, sys.argv[1])
import model
step = prejit.jit(model.step, link="separate")

def work():
    n = since()
    out = step(*model.start(3))
    done = n()
    return [bits(out), done["compiles"], done["loads"]]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_before_first_use(model):
    done = model(code=f"{FORK}\nreport(children=[in_child(work, 100), in_child(work, 100)], mine=work())")
    (first, compiles, _), (second, none, loaded) = done.children
    assert first == second == done.mine[0]
    assert compiles > 0
    assert none == 0
    assert loaded == compiles
    assert done.mine[1] == 0


SPAWN = """
import multiprocessing
def work(folder):
    sys.path.insert(0, folder)
    import model
    n = since()
    out = prejit.jit(model.step, link="separate")(*model.start(3))
    return bits(out), n()["compiles"]

if __name__ == "__main__":
    from concurrent.futures import ProcessPoolExecutor
    folder = sys.argv[1]
    mine = work(folder)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        theirs = list(pool.map(work, [folder] * 4))
    report(mine=mine, theirs=theirs)
"""


def test_spawned_pools(run_python, tmp_path):
    """A pool needs a main module in a file; what it says comes over standard output as from other children."""
    import json
    from pathlib import Path

    here = Path(__file__).parent
    (tmp_path / "model.py").write_text(MODEL.format(scale="1.0", decay="0.9"))
    (tmp_path / "main.py").write_text("from inside import *\n" + SPAWN)
    code = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)"
    done = run_python(code, tmp_path / "main.py", tmp_path, env={"PYTHONPATH": str(here)})
    [line] = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    values = json.loads(line.removeprefix("REPORT "))
    mine, theirs = values["mine"], values["theirs"]
    assert mine[1] > 0
    assert [compiles for _, compiles in theirs] == [0] * 4
    assert all(out == mine[0] for out, _ in theirs)


NO_PICKLE = """
sys.path.insert(0, sys.argv[1])
import model
events = []
sys.addaudithook(lambda event, args: events.append(event) if event == "pickle.find_class" else None)
out = prejit.jit(model.step, link="separate")(*model.start(3))
report(bits=bits(out), events=events)
"""


def test_nothing_is_unpickled(model):
    assert model(code=NO_PICKLE).events == []
    assert model(code=NO_PICKLE).events == []


DAMAGE = """
sys.path.insert(0, sys.argv[1])
import model
n = since()
out = prejit.jit(model.step, link="separate")(*model.start(3))
report(bits=bits(out), done=n(), compiled=seen.compiled)
"""


def test_damaged_entries_of_parts_are_compiled_again(model, store_files):
    cold = model(code=DAMAGE)
    damaged = store_files()["entry"][::2]
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    again = model(code=DAMAGE)
    assert again.bits == cold.bits
    assert again.done["corrupt"] > 0
    assert model(code=DAMAGE).done["compiles"] == 0
