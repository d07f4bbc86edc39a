"""`link="outline"` for a whole program: one module in which the parts that repeat are kept apart for XLA."""

from typing import Any

from prejit._jax import outline, pieces, tracing
from prejit._jax.jaxprs import open_jaxpr
from prejit.key.program import ProgramDigester
from prejit.program.policy import Chooser, limits_for
from prejit.program.work import Estimator

__all__ = ["with_parts_apart"]


def with_parts_apart(program: tracing.TracedProgram) -> tracing.TracedProgram:
    """Return the program with the calls marked that would be units if it were linked."""
    jaxpr, _ = open_jaxpr(program.closed_jaxpr)
    chooser = Chooser(jaxpr, limits_for("separate"), Estimator(), ProgramDigester())
    known: dict[int, Any] = {}
    marked = _marked(program.closed_jaxpr, chooser, known)
    if marked is program.closed_jaxpr:
        return program
    outline.install()
    return tracing.open_traced(tracing.with_jaxpr(program.traced, marked))


def _marked(closed_jaxpr: Any, chooser: Chooser, known: dict[int, Any]) -> Any:
    if id(closed_jaxpr) in known:
        return known[id(closed_jaxpr)]
    eqns: list[Any] = []
    has_changed = False
    for eqn in open_jaxpr(closed_jaxpr)[0].eqns:
        choice = chooser(eqn)
        body = pieces.jit_body(eqn)
        if body is None or choice == "glue":
            eqns.append(eqn)
        elif choice == "unit":
            eqns.append(outline.marked(eqn))
            has_changed = has_changed or eqns[-1] is not eqn
        else:
            inner = _marked(body, chooser, known)
            eqns.append(eqn if inner is body else eqn.replace(params={**eqn.params, "jaxpr": inner}))
            has_changed = has_changed or inner is not body
    result = known[id(closed_jaxpr)] = pieces.with_equations(closed_jaxpr, eqns) if has_changed else closed_jaxpr
    return result
