"""Bound methods: per-instance state and mutation.

Hit by: class-based simulators; `component(self.step)` or `@component` on a method
Right: 1, 2, then 9 after the mutation; 1 and 5 across processes.
Reported: jax-ml/jax#19570, jax-ml/jax#15338, PlasmaControl/DESC PR #310
"""

from shim import component, fresh


class Sim:
    def __init__(self, dt):
        self.dt = dt

    def step(self, x):
        return x + self.dt


a, b = Sim(1.0), Sim(2.0)
assert (float(component(a.step)(0.0)), float(component(b.step)(0.0))) == (1.0, 2.0)
a.dt = 9.0
assert float(component(a.step)(0.0)) == 9.0
src = "class Sim:\n    def __init__(s, dt): s.dt = dt\n    def step(s, x): return x + s.dt\nprint(float(component(Sim(%s).step)(0.0)))"
assert [fresh(src % v) for v in ("1.0", "5.0")] == ["1.0", "5.0"]
