"""A second process compiles and lowers nothing, and gives the same bits."""

PROGRAM = """
@prejit.component
def chain(x):
    for i in range(50):
        x = jnp.sin(x) * (1 + i / 100) + 0.5  # 150 operations
    return x

def normed(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale

def layer(p, x):
    h = normed(x, p["norm1"])
    q, k, v = jnp.split(h @ p["qkv"], 3, -1)
    heads = lambda t: t.reshape(*t.shape[:-1], 4, -1)
    scores = jnp.einsum("bthd,bshd->bhts", heads(q), heads(k)) / 4
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), heads(v)).reshape(x.shape)
    x = x + mixed @ p["out"]
    return x + jax.nn.gelu(normed(x, p["norm2"]) @ p["up"]) @ p["down"]

@prejit.component
def step(p, x, y):
    return jax.value_and_grad(lambda p: ((layer(p, x) - y) ** 2).mean())(p)

rng = np.random.RandomState(0)
draw = lambda *shape: rng.standard_normal(shape).astype(F32) * F32(0.05)
shapes = {"qkv": (64, 192), "out": (64, 64), "up": (64, 256), "down": (256, 64), "norm1": (64,), "norm2": (64,)}
params = {name: draw(*shape) for name, shape in shapes.items()}
x, y = draw(2, 8, 64), draw(2, 8, 64)
nr_ops = len(jax.make_jaxpr(lambda x: chain.__wrapped__(x))(X).eqns)
n = since()
out = chain(X), step(params, x, y)
jax.block_until_ready(out)
done = n()
again = chain(X), step(params, x, y)  # and once warm in this process
report(bits=bits(out), again=bits(again), nr_ops=nr_ops, done=done, idle=n() == done,
       info=[chain.cache_info().loads, step.cache_info().loads])
"""


def test_a_chain_and_a_transformer_layer_start_without_compiling(child):
    cold, warm = child(PROGRAM), child(PROGRAM)
    assert cold.nr_ops >= 150
    assert (cold.done["compiles"], cold.done["lowerings"], cold.done["misses"]) == (2, 2, 2)
    assert (warm.done["compiles"], warm.done["lowerings"], warm.done["loads"], warm.done["hits"]) == (0, 0, 2, 2)
    assert warm.seen["compiles"] == warm.seen["lowerings"] == 0
    assert warm.info == [1, 1]
    assert warm.bits == cold.bits == cold.again == warm.again
    assert cold.idle, "a second call is not even a lookup"
    assert warm.idle
    assert cold.agrees()
    assert warm.agrees()
    # The control: without prejit both counts are there to be seen.
    plain = child(PROGRAM, env={"PREJIT_DISABLE": "1"})
    assert plain.seen["compiles"] == plain.seen["lowerings"] == 2
    assert plain.bits == cold.bits


EDITED = """
import sys
sys.path.insert(0, sys.argv[1])
import model
n = since()
values = [float(f(F32(2))) for f in (model.first, model.second, model.third)]
done = n()
report(values=values, done=done)
"""
MODEL = """
import jax.numpy as jnp, prejit
{top}
def helper(x):
    return jnp.sin(x) * {factor}
@prejit.component
def first(x):
    return helper(x) + 1
@prejit.component
def second(x):
    return jnp.cos(x) * 3
{middle}
@prejit.component
def third(x):
    return second(x) - jnp.tanh(x)
"""


def test_an_edit_compiles_what_it_changes_and_moving_code_nothing(child, tmp_path):
    def run(**changes):
        fields = {"top": "", "middle": "", "factor": "2.0"} | changes
        (tmp_path / "model.py").write_text(MODEL.format(**fields))
        return child(EDITED, tmp_path)

    cold = run()
    assert cold.done["compiles"] == 3
    edited = run(factor="5.0")
    assert (edited.done["compiles"], edited.done["lowerings"]) == (1, 1), "the control: the edited function compiles"
    assert (edited.done["hits"], edited.done["misses"]) == (2, 1)
    assert edited.values != cold.values
    assert edited.values[1:] == cold.values[1:]
    moved = run(top="# a comment\n\nunrelated = 7\n", middle="def other(x):\n    return x\n\n")
    assert (moved.done["compiles"], moved.done["lowerings"]) == (0, 0)
    assert moved.values == cold.values
