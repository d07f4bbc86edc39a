"""What `docs/concepts/programs.md` says that an edit compiles, and why a program stays one module."""

import re
from contextlib import nullcontext
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit

PAGE = (Path(__file__).parents[3] / "docs/concepts/programs.md").read_text()
SOURCE = re.search(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE).group(1).partition("print(")[0]
EDITS = {
    "none": lambda source: source.replace("import jax\n", "import jax  # nothing\n\n\n", 1),
    "the layer": lambda source: source.replace("gelu", "silu"),
    "the optimizer": lambda source: source.replace("0.1 *", "0.2 *"),
    "the loss": lambda source: source.replace("** 2", "** 4"),
    "10 layers": lambda source: source.replace("range(8)", "range(10)"),
}


def counts_of(source):
    """Start the page's program from its source: how many parts are compiled and how many are there already."""
    namespace = {}
    exec(source, namespace)
    before = prejit.counters()
    namespace["step"].warm(namespace["params"], namespace["x"])
    return [prejit.counters()[name] - before[name] for name in ("compiles", "hits")]


def test_what_an_edit_compiles(store_dir):
    compiled, _ = counts_of(SOURCE)
    assert compiled == 7
    table = dict(re.findall(r"^\| ([^:,|]+)[:,|].*?\| (\d+)", PAGE, re.MULTILINE))
    for what, edit in EDITS.items():
        edited = edit(SOURCE)
        assert edited != SOURCE
        compiles, hits = counts_of(edited)
        assert (what, compiles) == (what, int(table[what]))
        assert compiles + hits == 7


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def stack(w, x):
    return layer(w, layer(w, layer(w, x)))


def placed(w, x):
    return layer(w, jax.device_put(layer(w, x), jax.devices()[0]))


def spread(x):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), "x")
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))


DEVICE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
W, X = np.eye(8, dtype=np.float32), np.ones((4, 8), np.float32)


@pytest.mark.parametrize(
    ("words", "function", "options", "args"),
    [
        ("there is nothing in it to cut at", stack, {"link": "auto"}, (W, X)),
        ("it runs on several devices", stack, {}, (W, "spread")),
        ("equations in it ask for devices", placed, {}, (W, X)),
        ("it was given in_shardings", stack, {"in_shardings": DEVICE}, (W, X)),
        ("it was given device", stack, {"device": jax.devices()[0]}, (W, X)),
        ("it was given backend", stack, {"backend": "cpu"}, (W, X)),
    ],
)
def test_one_module_and_its_reason(store_dir, words, function, options, args):
    args = tuple([spread(X) if isinstance(arg, str) else arg for arg in args])
    is_old = bool({"device", "backend"} & options.keys())
    with pytest.warns(DeprecationWarning, match="argument on jit is deprecated") if is_old else nullcontext():
        plan = prejit.jit(function, **{"link": "separate", **options}).plan(*args)
    assert not plan.is_linked
    assert words in plan.reason
    assert words in PAGE or words.startswith("it was given")


def test_reasons_that_lie_around_the_call(store_dir):
    step = prejit.jit(stack, link="separate")
    with prejit.disabled():
        plan = step.plan(W, X)
        assert (plan.is_linked, plan.reason) == (False, "prejit is disabled")
        assert plan.cost_analysis()
    assert step.plan(W, X).is_linked
    with jax.set_mesh(jax.sharding.Mesh(np.array(jax.devices()[:2]), "x")):
        plan = prejit.jit(stack, link="separate").plan(W, X)
    assert (plan.is_linked, plan.reason) == (False, "a mesh is set around it")


def test_what_a_program_gains_by_a_large_unit(store_dir):
    @jax.jit
    def large(x):
        for n in range(450):
            x = jnp.sin(x) + n
        return x

    plan = prejit.jit(lambda x: jnp.sort(large(x)).sum(), link="auto").plan(np.ones((256, 256), np.float32))
    assert plan.is_linked
    assert re.match(r"90\d equations are stored apart from the rest, calling takes ", plan.reason)


def test_auto_counts_what_repeats(store_dir):
    namespace = {}
    exec(SOURCE, namespace)
    step, params, x = (namespace[name] for name in ("step", "params", "x"))
    assert step.plan(params, x).is_linked
    few = step.plan({**params, "layers": params["layers"][:2]}, x)
    assert few.reason.startswith("too little in it repeats")


def test_compile_is_linked_and_lower_is_jax_own(store_dir):
    program = prejit.jit(stack, link="separate")
    assert program.compile(W, X).runtime_executable() is None
    assert program.lower(W, X).compile().runtime_executable() is not None


def test_donated_buffers_that_no_result_can_take_warn_in_every_process(store_dir):
    def two_of_three(a, b):
        return layer(a, layer(a, b))

    for _ in range(2):  # the second time everything is there already
        before = prejit.counters()["compiles"]
        program = prejit.jit(two_of_three, donate_argnums=(0, 1), link="separate")
        with pytest.warns(UserWarning, match=r"Some donated buffers were not usable: float32\[8,8\]"):
            program(jnp.array(W), jnp.array(X))
        jax.clear_caches()
    assert prejit.counters()["compiles"] == before


def test_a_part_that_does_not_compile_makes_one_module(store_dir, monkeypatch):
    def fail(*args):
        raise RuntimeError("XLA says no")

    monkeypatch.setattr("prejit.program.link.link", fail)
    program = prejit.jit(stack, link="separate")
    with pytest.warns(prejit.LinkWarning, match="RuntimeError: XLA says no; it is compiled as one module"):
        out = program(W, X)
    np.testing.assert_allclose(out, jax.jit(stack)(W, X), rtol=1e-6)


def test_an_unhashable_callable_is_refused_as_by_jit(store_dir):
    class Doubling:
        __hash__ = None

        def __call__(self, x):
            return x * 2

    for jit in (jax.jit, prejit.jit):
        with pytest.raises(TypeError, match="unhashable type"):
            jit(Doubling())(1.0)
