"""Say in plain data what came of calls, so that two ways to make them, or two processes, can be compared."""

import hashlib
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["assert_same_outcomes", "outcomes"]


def outcomes(calls, compiles=None):
    """Make calls, given as functions with arguments; for each what came of it, and in how many compiles.

    Args:
        calls: Iterator of them; what it raises is an outcome too, its last one.
        compiles: Gives the number of compiles so far; without it none are counted.
    """
    found = []
    while True:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            before = compiles() if compiles else 0
            outcome = {}
            try:
                function, *args = next(calls)
                before = compiles() if compiles else 0
                out = jax.block_until_ready(function(*args))
                nr_compiles = compiles() - before if compiles else 0
                outcome["results"] = [described(leaf) for leaf in jax.tree.leaves(out)]
                outcome["tree"] = str(jax.tree.structure(out))
                outcome["deleted"] = [
                    leaf.is_deleted() for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.Array)
                ]
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001  # it is the outcome
                nr_compiles = 0
                outcome["error"] = [type(error).__name__, without_addresses(str(error))]
        outcome["said"] = [[w.category.__name__, str(w.message), where(w)] for w in said]
        found.append((outcome, nr_compiles))


def where(warning):
    """Return the file that a warning points at, unless that is one of JAX's own: there we point at the caller's."""
    return "" if warning.category is UserWarning else Path(warning.filename).name


def described(leaf):
    """Say what a result is and where, as plain data."""
    if not isinstance(leaf, jax.Array):
        return repr(leaf)
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    values = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    layout = None if is_key else leaf.format.layout
    return {
        "type": str(leaf.aval),
        "weak": leaf.weak_type if not is_key else False,
        "values": np.ravel(values)[:256].tolist(),
        "digest": hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest(),
        "sharding": f"{leaf.sharding} {getattr(leaf.sharding, 'memory_kind', None)}",
        "shards": [[shard.device.id, str(shard.index)] for shard in leaf.addressable_shards],
        "committed": leaf.committed,
        "layout": None if layout is None else str(layout.major_to_minor),
    }


def without_addresses(text):
    """Return a message without what is another in every process."""
    return re.sub(r"0x[0-9a-f]+|File \"[^\"]*\", line \d+|\S*\.py:\d+(:\d+)?", "…", text)


def assert_same_outcomes(got, want, *, is_exact):
    """Compare the outcomes of a scenario's calls; values to the last bit, or as near as linking leaves them."""
    assert len(got) == len(want)
    for (mine, _), (theirs, _) in zip(got, want, strict=True):
        if not is_exact and "results" in mine and "results" in theirs:
            for one, other in zip(mine["results"], theirs["results"], strict=True):
                if isinstance(one, dict):
                    np.testing.assert_allclose(one.pop("values"), other["values"], rtol=1e-6)
                    del one["digest"]
            theirs = {**theirs, "results": [without_values(result) for result in theirs["results"]]}
        assert mine == theirs


def without_values(result):
    if not isinstance(result, dict):
        return result
    return {name: result[name] for name in result if name not in ("values", "digest")}
