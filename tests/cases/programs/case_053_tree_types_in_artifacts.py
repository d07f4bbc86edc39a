"""Namedtuples, OrderedDict, defaultdict, dataclasses in artifacts.

Hit by: optax states (namedtuples), flax/penzai/equinox models
Right: structure and type come back; a worker without the class gets a clear message or a structural
    stand-in.
Reported: jax-ml/jax#20134, jax-ml/jax PR #24342, google-deepmind/penzai#123
"""

import collections
import dataclasses
import sys

import jax

from shim import from_artifact, needs_export, one, to_artifact

needs_export()

NT = collections.namedtuple("NT", "a b")
NT.__module__ = "__main__"
sys.modules["__main__"].NT = NT


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class St:
    w: jax.Array
    tag: str = dataclasses.field(default="t", metadata=dict(static=True))


for arg in (NT(one, one), St(one), collections.OrderedDict(b=one), collections.defaultdict(int, b=one)):
    f = lambda t: jax.tree.map(lambda v: v * 2, t)
    out = from_artifact(to_artifact(f, arg))(arg)
    assert type(out) is type(arg) and float(jax.tree.leaves(out)[0]) == 2.0
