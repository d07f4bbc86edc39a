"""Custom calls: who registers them, and what must run before an executable that contains one. GPUs by simulation."""

import types

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import sparse

from prejit._jax import executables


@pytest.fixture
def called(monkeypatch):
    """Record what initializers are run instead of running them, as in a process that ran none."""
    runs = []

    def import_module(name):
        runs.append(name)
        return types.SimpleNamespace(
            initialize=lambda: runs.append("initialize"),
            initialize_hybrid_kernels=lambda: runs.append("initialize_hybrid_kernels"),
        )

    monkeypatch.setattr(executables, "_initialized", set())
    monkeypatch.setattr(executables.importlib, "import_module", import_module)
    return runs


@pytest.mark.parametrize(
    ("target", "runs"),
    [
        ("lapack_sgetrf_ffi", ["jaxlib.cpu._lapack", "initialize"]),
        ("cuhybrid_eig_real", ["jaxlib.gpu_solver", "initialize_hybrid_kernels"]),
        ("hiphybrid_geqp3", ["jaxlib.gpu_solver", "initialize_hybrid_kernels"]),
        ("cusparse_gtsv2_ffi", ["jax.experimental.sparse"]),
        ("cu_threefry2x32_ffi", []),
    ],
)
def test_what_runs_for_a_target(target, runs, called):
    executables.initialize_targets([target])
    assert called == runs
    executables.initialize_targets([target])
    assert called == runs, "once per process"


def test_targets_of_jax_are_known_and_others_are_not():
    known = ["lapack_sgetrf_ffi", "cu_lu_pivots_to_permutation", "hip_threefry2x32_ffi", "cublas_getrf", "Sharding",
             "mhlo.topk", "tpu_custom_call", "__gpu$xla.gpu.triton", "oneapi_prng"]  # fmt: skip
    assert executables.foreign_targets(known) == []
    assert executables.foreign_targets(["my_kernel", *known, "CustomSPMDPartitioning"]) == [
        "my_kernel",
        "CustomSPMDPartitioning",
    ]


def test_the_names_that_jax_lowers_to_are_known():
    square = jnp.eye(3)
    vector = jnp.ones(3)
    matrix = sparse.BCSR.fromdense(square)
    for function, args in (
        (jnp.linalg.inv, (square,)),
        (jnp.linalg.eigh, (square,)),
        (jnp.linalg.svd, (square,)),
        (jnp.linalg.qr, (square,)),
        (lambda m, v: m @ v, (matrix, vector)),
        (lambda x: jax.lax.top_k(x, 2), (vector,)),
        (lambda key: jax.random.normal(key, (3,)), (jax.random.key(0),)),
    ):
        lowered = jax.jit(function).lower(*args)
        assert executables.why_not_storable(lowered) is None


def test_every_initializer_is_there():
    for module, function in set(executables._INITIALIZERS.values()):
        imported = executables.importlib.import_module(module)
        assert not function or callable(getattr(imported, function))
