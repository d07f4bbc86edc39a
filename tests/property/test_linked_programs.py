"""Random programs, linked: the structure and types of `jax.jit`'s results, its values, and nothing compiled twice."""

import warnings

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from tests.property.program_specs import arguments, build, heard, raw, specs

import prejit
from prejit import config
from prejit.testing import count_compiles

NORMWISE = 1e-6  # float32
FLOOR = 0.1  # Values are of the size of 1; what is left of them where they cancel is compared by this size.
ULP, LOW_ULP = 2.0**-23, 2.0**-8
SLACK = 40.0  # Roundings on the way, each as if one argument had been rounded otherwise.


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with prejit.use_store(prejit.Store(tmp_path_factory.mktemp("store"))) as fresh:
        yield fresh


def run(function, args):
    heard.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = jax.block_until_ready(function(*args))
    jax.effects_barrier()
    said = [str(one.message).splitlines()[0] for one in caught]
    deleted = [isinstance(value, jax.Array) and value.is_deleted() for value in args]
    return out, said, deleted


def described(tree):
    return [
        (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", None), leaf.committed, leaf.sharding)
        for leaf in jax.tree.leaves(tree)
    ]


def numbers(tree):
    return [raw(leaf.dtype)(leaf) for leaf in jax.tree.leaves(tree)]


def distance(got, want):
    """Return the norm-wise difference of one leaf, relative to its norm."""
    if not np.issubdtype(want.dtype, np.inexact):
        return 0.0 if np.array_equal(got, want) else np.inf
    got, want = got.astype("complex128"), want.astype("complex128")
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return np.inf
    got, want = np.where(np.isfinite(got), got, 0), np.where(np.isfinite(want), want, 0)
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), FLOOR * np.sqrt(want.size), 1e-30))


def check_values(spec, jitted, got, want):
    got, want = numbers(got), numbers(want)
    if all(g.tobytes() == w.tobytes() for g, w in zip(got, want, strict=True)):
        event("values: bit-equal")
        return
    far = [distance(g, w) for g, w in zip(got, want, strict=True)]
    limit = LOW_ULP if spec.is_low else NORMWISE
    if max(far) <= limit:
        event(f"values: within {limit:g}")
        return
    # Some programs answer a rounding of their arguments with more than that.
    nudged = numbers(run(jitted, arguments(spec.feed, nudge=LOW_ULP if spec.is_low else ULP))[0])
    allowed = [max(limit, SLACK * distance(n, w)) for n, w in zip(nudged, want, strict=True)]
    assert all(f <= a for f, a in zip(far, allowed, strict=True)), (far, allowed)
    event(f"values: within {limit:g} of what a rounding of the arguments changes")


def check(spec, store):
    function = build(spec)
    jitted = jax.jit(build(spec), donate_argnums=spec.donated)
    want, want_said, want_deleted = run(jitted, arguments(spec.feed))
    want_heard = sorted(heard)
    with config.override(hoist_bytes=spec.hoist_bytes):
        linked = prejit.jit(function, donate_argnums=spec.donated, link="separate")
        got, said, deleted = run(linked, arguments(spec.feed))
        assert jax.tree.structure(got) == jax.tree.structure(want)
        assert described(got) == described(want)
        assert said == want_said
        assert deleted == want_deleted
        assert len(heard) == len(want_heard)
        np.testing.assert_allclose(sorted(heard), want_heard, rtol=1e-3, atol=1e-3)
        check_values(spec, jitted, got, want)
        again, said, deleted = run(linked, arguments(spec.feed))
        assert [a.tobytes() for a in numbers(again)] == [g.tobytes() for g in numbers(got)], "the second call differs"
        assert said == []
        assert deleted == want_deleted
        # As in a new process: no executable in memory, and a function that was not traced.
        store.clear(tier="memory")
        fresh = prejit.jit(build(spec), donate_argnums=spec.donated, link="separate")
        args = arguments(spec.feed)
        with count_compiles() as counts:
            warm = run(fresh, args)[0]
        compiled = [name for name in counts.compiled if not spec.is_loud]  # no store keeps a callback
        assert (compiled, counts.lowered if not spec.is_loud else []) == ([], [])
        assert [a.tobytes() for a in numbers(warm)] == [g.tobytes() for g in numbers(got)], "a warm start differs"
        assert described(warm) == described(want)


RANDOM = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "phases": (Phase.explicit, Phase.generate, Phase.shrink),  # explaining takes minutes
}


@settings(max_examples=25, **RANDOM)
@given(specs())
def test_random_programs(store, spec):
    check(spec, store)


@settings(max_examples=10, **RANDOM)
@given(specs(is_loud=True))
def test_random_programs_with_callbacks(store, spec):
    check(spec, store)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=1000, **RANDOM)
@given(specs(), specs(is_loud=True))
def test_many_random_programs(store, spec, loud):
    check(spec, store)
    check(loud, store)
