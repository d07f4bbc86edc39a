"""What was loaded is never serialized again: XLA on CPU leaves functions out of it, and it fails when it runs."""

import pytest

PROGRAM = """
def double(x):
    return jax.vmap(lambda x: jnp.tanh(x * 2) + x.sum())(jnp.stack([x, 2 * x]))

done = since()
mode = sys.argv[1]
if "plain" in mode:  # from the store, as an eager module, in the second process
    jax.jit(double)(X)
out = prejit.jit(double)(X) if "program" in mode else None
names = [info.name for _, info in prejit.get_store().items() if info.variant != "eager" and info.kind == "executable"]
report(bits=bits(out), names=names, done=done())
"""


@pytest.mark.parametrize("jax_cache", [False, True], ids=["own store", "JAX's cache"])
def test_an_executable_that_was_loaded_is_compiled_anew_to_be_stored(child, tmp_path, jax_cache):
    theirs = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "theirs"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    env = theirs if jax_cache else {}
    child(PROGRAM, "plain", env=env)
    both = child(PROGRAM, "plain program", env=env)
    if jax_cache:
        assert "double" not in both.names, "what JAX loaded from its cache has no bytes to store"
    else:
        assert "double" in both.names
    alone = child(PROGRAM, "program", env=env)
    if not jax_cache:
        assert (alone.done["hits"], alone.done["compiles"]) == (1, 0)
    assert alone.bits == both.bits


def test_a_dead_executable_leaves_no_mark_on_the_next_one_at_its_address(child):
    code = """
    from prejit._jax import compilation
    def use(n):
        jax.jit(lambda x: x * n)(X)
    for n in range(30):
        use(n)
    forget()
    for n in range(30):
        use(n)  # loaded from the store, and gone
        forget(); gc.collect()
    marked = 0
    for n in range(30):
        compiled = jax.jit(lambda x: x + n * 0.37).lower(X).compile()
        marked += compilation.was_deserialized(compiled.runtime_executable())
        del compiled; gc.collect()
    report(marked=marked, loads=prejit.counters()["loads"])
    """
    seen = child(code)
    assert seen.loads > 0
    assert seen.marked == 0
