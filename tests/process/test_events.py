"""Counters agree with an independent listener, lookups are logged quietly, and nothing is said unasked."""

MIXED = """
x = jnp.arange(8.0) + 1  # eager
@prejit.component
def f(x, k=2):
    return jnp.where(x > 0, x ** k, 0).sum()
@prejit.component(static_argnames="n", donate_argnums=0)
def g(x, n):
    return jax.lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + i, x)
@jax.jit
def plain(x):
    return f(x) + jax.nn.softmax(x).sum()
@prejit.component
def calling_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
f(x), f(x, 3), f(x=x), f(X)
g(x + 1, 3), g(x + 1, n=4)
plain(x), jax.grad(plain)(x), jax.vmap(f)(jnp.ones((3, 8))), jax.jit(jax.hessian(f))(x)
calling_back(x)
f.lower(x), f.compile(x), f.eval_shape(x), f.key_for(x)
with prejit.disabled():
    f(x * 2)
with jax.disable_jit():
    f(x)
with jax.enable_x64(True):
    f(np.arange(4.0))
threads = [threading.Thread(target=lambda i=i: prejit.component(lambda x: x * i)(x)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
forget()
f(x), plain(x), g(x + 1, 3)
info = f.cache_info()
report(info=[info.hits, info.misses, info.bypasses, info.compiles, info.loads])
"""


def test_counters_agree_with_jax_monitoring(child):
    cold, warm = child(MIXED), child(MIXED)
    for report in (cold, warm):
        assert report.agrees(), (report.counters, report.seen)
        assert report.counters["bypasses"] == 1
    assert cold.counters["compiles"] > cold.counters["eager_compiles"] > 0
    assert warm.counters["loads"] > warm.counters["eager_loads"] > 0
    # What can't be stored compiles every time, and so does what runs in the block that turns prejit off.
    assert warm.compiled == ["jit(calling_back)", "jit(multiply)", "jit(f)"]
    assert len(cold.compiled) > 10


LOGGED = """
import logging
records = []
class Keep(logging.Handler):
    def emit(self, record):
        records.append([record.levelname, record.getMessage()])
if "listen" in sys.argv:
    logging.getLogger("prejit").addHandler(Keep())
    logging.getLogger("prejit").setLevel(logging.DEBUG)
from prejit import events
lookups = []
def listen(lookup):
    lookups.append([lookup.name, lookup.outcome, lookup.is_eager, len(lookup.digest)])
stop = events.subscribe(listen)
f = prejit.component(lambda x: jnp.sin(x) * 3, name="a_name")
f(X)
forget()
f(X)
prejit.component(lambda x: jax.pure_callback(np.sin, SPEC, x), name="calling_back")(X)
jnp.cos(X)
stop()
jnp.tanh(X)
report(records=records, lookups=lookups)
"""


def test_lookups_are_events_and_debug_messages(child):
    heard = child(LOGGED, "listen")
    assert [lookup[:3] for lookup in heard.lookups] == [
        ["a_name", "miss", False],
        ["a_name", "hit", False],
        ["calling_back", "bypass", False],
        ["jit_cos", "miss", True],
    ]
    assert [length for *_, length in heard.lookups[:2]] == [64, 64]
    assert {level for level, _ in heard.records} == {"DEBUG"}
    texts = [text for _, text in heard.records]
    for start in ("a_name: miss", "a_name: hit", "calling_back: bypass (", "eager jit_cos: miss"):
        assert any(text.startswith(start) for text in texts), (start, texts)


def test_nothing_is_printed_by_default(child):
    quiet = child(LOGGED)
    assert quiet.lookups
    assert quiet.records == []
    assert quiet.stderr == ""
    assert [line for line in quiet.stdout.splitlines() if not line.startswith("REPORT ")] == []
    # The control: set up, the messages do come out.
    loud = child("import logging\nlogging.basicConfig(level=logging.DEBUG)\n" + LOGGED)
    assert "a_name: hit" in loud.stderr


STRICT = """
import prejit, numpy as np, sys
import jax.numpy as jnp
f = prejit.component(lambda x: jnp.sin(x) * 3)
for _ in range(2):
    assert np.allclose(f(np.ones(4, np.float32)), np.sin(1) * 3)
    prejit.get_store().clear(tier="memory")
f.lower(1.0), f.cache_info(), prejit.counters(), str(f.key_for(1.0)), prejit.get_store().stats()
if "warn" in sys.argv:
    first = prejit.component(lambda x: x, key="k")
    second = prejit.component(lambda x: x + 1, key="k")
"""


def test_import_and_a_call_warn_of_nothing(run_python):
    strict = {"PYTHONWARNINGS": "error", "PYTHONDEVMODE": None}
    for _ in ("cold", "warm"):
        assert run_python(STRICT, env=strict).stderr == ""
    # The control: a warning would have ended the program.
    failed = run_python(STRICT, "warn", env=strict, check=False)
    assert failed.returncode == 1
    assert "KeyReuse" in failed.stderr


def test_an_import_alone_does_no_work(run_python):
    done = run_python(
        "import prejit, sys, jax\n"
        "from jax._src import xla_bridge\n"
        "print(xla_bridge.backends_are_initialized(), prejit.counters()['traces'], 'prejit.store' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "0", "False"]
