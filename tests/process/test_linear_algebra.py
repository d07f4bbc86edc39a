"""LAPACK programs that were loaded run, in a process that has lowered none, and agree bit by bit."""

PROGRAM = """
import jax.scipy.linalg as jsl
if "without" in sys.argv:
    from prejit._jax import executables
    executables.initialize_targets = lambda targets: None
rng = np.random.RandomState(0)
FUNCTIONS = {
    "inv": jnp.linalg.inv, "eigh": jnp.linalg.eigh, "svd": jnp.linalg.svd, "cholesky": jnp.linalg.cholesky,
    "qr": jnp.linalg.qr, "lu": lambda a: jsl.lu(a) if a.ndim == 2 else jax.vmap(jsl.lu)(a),
}
results = {}
for dtype in (np.float32, np.float64, np.complex64, np.complex128):
    for shape in ((5, 5), (3, 4, 4)):
        a = rng.standard_normal(shape)
        if np.issubdtype(dtype, np.complexfloating):
            a = a + 1j * rng.standard_normal(shape)
        a = (a @ np.conj(np.swapaxes(a, -1, -2)) + 3 * np.eye(shape[-1])).astype(dtype)  # Hermitian and positive
        for name, function in FUNCTIONS.items():
            out = prejit.component(function, name=name)(a)
            out = jax.block_until_ready(out)
            results[f"{name} {np.dtype(dtype)} {shape}"] = bits(out)
            assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(out)), name
            if name == "inv":
                assert np.allclose(np.asarray(out) @ a, np.eye(shape[-1]), atol=1e-3)
report(results=results)
"""


def test_lapack_runs_from_the_store(child):
    env = {"JAX_ENABLE_X64": "1"}
    cold, warm = child(PROGRAM, env=env), child(PROGRAM, env=env)
    assert len(cold.results) == 48
    assert warm.results == cold.results
    assert (warm.counters["compiles"], warm.counters["lowerings"]) == (0, 0)
    assert warm.seen["compiles"] == warm.seen["lowerings"] == 0
    assert warm.counters["loads"] == cold.counters["misses"] >= 48
    # The control: it is the initializers that make this work.
    without = child(PROGRAM, "without", env=env, check=False)
    assert without.rc < 0, "a loaded LAPACK call that nobody initialized should have crashed"
