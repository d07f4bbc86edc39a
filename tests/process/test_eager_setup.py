"""Operations outside any component: setting up a model and an optimizer compiles nothing the second time."""

import pytest

pytest.importorskip("optax")

PROGRAM = """
import optax

def init(key, sizes):
    params = []
    for n_in, n_out in zip(sizes, sizes[1:]):
        key, wkey, bkey = jax.random.split(key, 3)
        scale = jnp.sqrt(2.0 / n_in)
        params.append({"w": jax.random.normal(wkey, (n_in, n_out)) * scale,
                       "b": jax.random.uniform(bkey, (n_out,), minval=-0.1, maxval=0.1),
                       "scale": jnp.ones((n_out,))})
    return params

n = since()
params = init(jax.random.key(0), [8, 16, 12, 4])
tx = optax.adamw(1e-3)
state = tx.init(params)
jax.block_until_ready((params, state))
done = n()
report(bits=bits((params, state)), done=done, eager=len(entries(eager=True)), own=len(entries()))
"""


def test_a_second_process_sets_up_without_compiling(child):
    cold, warm = child(PROGRAM), child(PROGRAM)
    assert cold.done["eager_compiles"] == cold.done["compiles"] == cold.done["eager_misses"] == cold.eager > 10
    assert (warm.done["compiles"], warm.done["eager_compiles"]) == (0, 0)
    assert warm.seen["compiles"] == 0
    assert warm.done["eager_hits"] == warm.done["eager_loads"] == warm.done["loads"] == cold.done["compiles"]
    assert (warm.done["hits"], warm.done["misses"]) == (0, 0), "these are counted apart from components"
    assert warm.bits == cold.bits
    assert cold.agrees()
    assert warm.agrees()


def test_the_setting_turns_it_off(child):
    cold = child(PROGRAM)
    off = child(PROGRAM, env={"PREJIT_EAGER_CACHE": "0"})
    assert off.done["compiles"] == off.seen["compiles"] == cold.done["compiles"]
    assert (off.done["eager_hits"], off.done["eager_misses"]) == (0, 0)
    assert off.bits == cold.bits


def test_the_users_own_jax_cache_wins(child, tmp_path):
    own = tmp_path / "jax-cache"
    env = {
        "JAX_COMPILATION_CACHE_DIR": str(own),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    cold = child(PROGRAM, env=env)
    assert cold.eager == 0
    assert cold.done["eager_hits"] == cold.done["eager_misses"] == 0
    assert len([path for path in own.iterdir() if path.name.endswith("-cache")]) == cold.seen["compiles"] > 10
    warm = child(PROGRAM, env=env)
    assert warm.seen["compiles"] == 0, "JAX's own cache answers"
    assert warm.agrees(), "and an answer from it is not counted as a compile"
    assert warm.bits == cold.bits
