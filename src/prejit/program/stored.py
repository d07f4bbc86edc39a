"""A plan in the store: all that a process needs to link a program that it has not traced.

The key is the plan's own content, so equal programs share one entry, and an entry can't be another program's. Whoever
knows by other means which plan a call has (a source manifest) starts from here; a traced call makes its plan about as
fast as it could digest the whole program to look it up.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from prejit._jax import avals, running, tracing
from prejit.errors import KeyingError
from prejit.key import ComponentKey, Ingredient, environment_ingredients
from prejit.program.plan import Layout
from prejit.program.run import Linked, Results
from prejit.signature import trees
from prejit.signature.describe import aval_text
from prejit.stage.ladder import Prepared
from prejit.stage.listing import ingredients_of
from prejit.stage.segment import SegmentJob
from prejit.stage.together import prepare_together
from prejit.store import CacheEntry, Store

__all__ = ["PLAN_FORMAT", "keep_plan", "link_stored"]

PLAN_FORMAT = 2

_encode = msgspec.json.Encoder(order="sorted").encode


def keep_plan(
    store: Store, name: str, layout: Layout, jobs: Sequence[SegmentJob], program: tracing.TracedProgram,
    used: Sequence[bool], given_up: Sequence[int],
) -> ComponentKey | None:  # fmt: skip
    """Store the plan of a linked program, unless it is there.

    Returns:
        Its key; None where the plan has parts that no other process can get: callbacks, large constants, types or
        structures without a description.
    """
    if layout.nr_consts or not all(unit.digest for unit in layout.units):
        return None
    try:
        meta: dict[str, Any] = {
            "plan_format": PLAN_FORMAT,
            "layout": layout,
            "units": [
                {
                    "in_types": [avals.describe_aval(aval) for aval in job.in_avals],
                    "out_types": [avals.describe_aval(aval) for aval in job.out_avals],
                    "key": job.key("executable").digest,
                }
                for job in jobs
            ],
            "compiler_options": [list(option) for option in program.compiler_options],
            "in_avals": [aval_text(aval) for aval in program.in_avals],
            "out_avals": [aval_text(aval) for aval in program.out_avals],
            "out_types": [avals.describe_aval(aval) for aval in program.out_avals],
            "out_tree": trees.describe_tree(program.traced.out_tree),
            "used": list(used),
            "given_up": list(given_up),
        }
        content = _encode(meta)
    except (KeyingError, TypeError):
        return None
    key = _key(hashlib.sha256(content).hexdigest(), jobs[0].device)
    if store.lookup(key).entry is None:
        store.put(
            CacheEntry(
                key=key.digest,
                kind="plan",
                name=name,
                created=time.time(),
                ingredients=ingredients_of(key),
                sections={"plan": content},
            )
        )
    return key


def _key(digest: str, device: Any) -> ComponentKey:
    return ComponentKey(
        identity=(Ingredient("plan", digest), Ingredient("kind", "plan")),
        environment=environment_ingredients("executable", platform=device.platform, devices=(device,)),
    )


def link_stored(entry: CacheEntry, flat: Sequence[Any]) -> Linked:
    """Link a program from its stored plan and executables, without a trace.

    Args:
        entry: What `keep_plan` stored.
        flat: Arguments of the kind that the plan is for.

    Raises:
        LookupError: An executable of the plan is nowhere to be had.
        KeyError, TypeError, ValueError: The entry is no plan of this format.
        KeyingError: The structure of the result can't be rebuilt in this process.
    """
    meta: dict[str, Any] = json.loads(entry.sections["plan"])
    if meta["plan_format"] != PLAN_FORMAT:
        raise ValueError(f"reading a plan: expected format {PLAN_FORMAT}, got {meta['plan_format']!r}")
    layout = Layout.from_dict(meta["layout"])
    taken = {
        register
        for call in layout.calls
        for register, is_reused in zip(call.reads, layout.units[call.unit].donated, strict=True)
        if is_reused and register < layout.nr_inputs
    }
    if not taken.issubset(meta["given_up"]):
        raise ValueError("reading a plan: expected only inputs reused that the caller gives up, got others")
    reads = [value for value, is_used in zip(flat, meta["used"], strict=True) if is_used]
    committed = tracing.devices_of(reads)
    device = (committed or [tracing.default_device()])[0]
    options = tuple([(name, value) for name, value in meta["compiler_options"]])
    jobs = [
        SegmentJob(
            name=unit.name,
            digest=unit.digest,
            in_avals=[avals.aval_from(described) for described in types["in_types"]],
            out_avals=[avals.aval_from(described) for described in types["out_types"]],
            donated=unit.donated,
            device=device,
            closed_jaxpr=_untraced,
            compiler_options=options,
        )
        for unit, types in zip(layout.units, meta["units"], strict=True)
    ]
    jobs.append(SegmentJob.guard(device))
    executables: list[Any] = []
    for outcome in prepare_together(jobs, name=entry.name):
        if isinstance(outcome, Prepared):
            executables.append(outcome.loaded.executable)
        else:
            raise outcome if isinstance(outcome, Exception) else LookupError(outcome.reason)
    out_avals = [avals.aval_from(described) for described in meta["out_types"]]
    results = Results(
        trees.tree_from(meta["out_tree"]),
        out_avals,
        [running.single_device(device)] * len(out_avals),
        is_committed=bool(committed),
    )
    return Linked(
        layout,
        executables[:-1],
        [],
        [job.out_avals for job in jobs[:-1]],
        results,
        device,
        flat,
        [n for n, is_used in enumerate(meta["used"]) if is_used],
        meta["given_up"],
        executables[-1],
    )


def _untraced() -> Any:
    raise LookupError("linking a stored plan: expected its executables in the store, got one that is missing")
