"""Lambda or function in a static field.

Hit by: `MLP(activation=lambda x: ...)` rebuilt on each step or in each process
Right: 7, then a pure hit, then 11. Functions in static metadata need the same content-based
    identity as the component itself; `repr` contains an address.
Reported: patrick-kidger/equinox#686, #640; google/flax#5512
"""

from shim import entries, fresh

src = """
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Net:
    w: jax.Array
    act: object = dataclasses.field(default=None, metadata=dict(static=True))
f = component(lambda n, x: n.act(n.w * x))
print(float(f(Net(2.0, lambda v: v + %s), 3.0)), float(f(Net(2.0, jax.nn.relu), -1.0)))
"""
assert fresh(src % "1.0") == "7.0 0.0"
n = len(entries())
assert fresh(src % "1.0") == "7.0 0.0" and len(entries()) == n
assert fresh(src % "5.0") == "11.0 0.0"
