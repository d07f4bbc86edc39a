"""A store for every test, and programs in parts without compiling them."""

import functools
import warnings

import jax
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import prejit
from prejit._jax import pieces, tracing
from prejit.key.program import ProgramDigester
from prejit.program.link import draw
from prejit.program.partition import partition
from prejit.program.policy import Chooser, limits_for
from prejit.program.work import Estimator


@pytest.fixture(autouse=True)
def store(tmp_path):
    """Use a fresh store, in memory and on disk, for one test."""
    with prejit.use_store(prejit.Store(tmp_path / "store")) as fresh:
        yield fresh


class Taken:
    """A program taken apart: its parts, and what they compute when they run one after another."""

    def __init__(self, closed, parts):
        self.closed = closed
        self.parts = parts
        self.segments = parts.segments

    def kinds(self):
        return [segment.kind for segment in self.segments]

    def names(self):
        return [segment.name for segment in self.segments]

    def primitives(self, kind=None):
        return [
            [eqn.primitive.name for eqn in segment.eqns]
            for segment in self.segments
            if kind is None or segment.kind == kind
        ]

    def run(self, *args):
        """Run the segments in order, on values that are dropped when nobody can read them."""
        env = dict(zip(self.parts.constvars, self.parts.consts, strict=True))
        env.update(zip(self.parts.invars, args, strict=True))
        for segment in self.segments:
            out = jaxpr_as_fun(segment.closed_jaxpr())(*[env[var] for var in segment.invars])
            assert len(out) == len(segment.outvars)
            for var, value in zip(segment.outvars, out, strict=True):
                assert var not in env, "a value is computed once"
                env[var] = value
        return [env[var] for var in self.parts.outvars]

    def check(self, *args):
        """Compare with the program as a whole; return self."""
        want = jaxpr_as_fun(self.closed)(*args)
        for got, expected in zip(map(jax.numpy.asarray, self.run(*args)), map(jax.numpy.asarray, want), strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-5, atol=1e-6)
        return self


@pytest.fixture
def take_apart():
    """Take a function apart: `take_apart(function, *args, link="separate", hoist_bytes=...)` -> Taken, checked."""

    def take(function, *args, link="separate", hoist_bytes=65536, choose=None, check=True):
        closed = jax.make_jaxpr(function)(*args)
        jaxpr, consts, _ = pieces.without_dead_code(closed)
        choose = choose or Chooser(jaxpr, limits_for(link), Estimator(), ProgramDigester())
        taken = Taken(closed, partition(jaxpr, consts, choose, hoist_bytes))
        return taken.check(*jax.tree.leaves(args)) if check else taken

    return take


@pytest.fixture
def layout_of():
    """Return the plan of a program: `layout_of(function, *args, donate_argnums=())` -> Layout."""

    def layout(function, *args, **options):
        program = tracing.open_traced(jax.jit(function, **options).trace(*args))
        drawn = draw(program, jax.tree.leaves(args), "separate")
        return drawn.layout

    return layout


@pytest.fixture
def linked():
    """Make a program that is linked wherever it can be."""
    return functools.partial(prejit.jit, link="separate")


class Outcome:
    """What one call did: its result or error, its warnings, and which arguments it deleted."""

    def __init__(self, function, args, named):
        self.out = self.error = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self.out = jax.block_until_ready(function(*args, **named))
            except Exception as error:  # noqa: BLE001  # compared with what jax.jit raises
                self.error = error
        self.said = [(one.category, str(one.message)) for one in caught]
        leaves = jax.tree.leaves((args, named))
        self.deleted = [leaf.is_deleted() if isinstance(leaf, jax.Array) else None for leaf in leaves]


@pytest.fixture
def as_jit():
    """Compare a linked program with `jax.jit`: `as_jit(function, make_args, **options)`, cold and again.

    `make_args()` gives fresh positional arguments, or a pair of these and keyword arguments. Compared are results (but
    for floating-point numbers bit by bit), types, placement, errors, warnings, and which arguments are deleted.
    """
    from tests.transforms.table import assert_same

    def renewed(function):
        @functools.wraps(function)
        def fresh(*args, **named):
            return function(*args, **named)

        return fresh  # JAX keeps traces and lowerings by function, and so warns once

    def compare(function, make_args, *, calls=2, is_linked=True, **options):
        theirs = jax.jit(renewed(function), **options)
        ours = prejit.jit(renewed(function), link="separate", **options)
        for _ in range(calls):
            results = []
            for call in (theirs, ours):
                made = make_args()
                args, named = made if len(made) == 2 and isinstance(made[1], dict) else (made, {})
                results.append(Outcome(call, args, named))
            want, got = results
            if want.error is None:
                if got.error is not None:
                    raise got.error
                assert_same(got.out, want.out, is_exact=False)
            else:
                assert got.error is not None, want.error
                assert type(got.error) is type(want.error), (got.error, want.error)
                assert str(got.error) == str(want.error)
            assert got.said == want.said
            assert got.deleted == want.deleted
        if is_linked is not None and want.error is None:
            made = make_args()
            args, named = made if len(made) == 2 and isinstance(made[1], dict) else (made, {})
            assert ours.plan(*args, **named).is_linked == is_linked
        return ours

    return compare
