"""Run loaded executables one after another with as little as possible between them.

JAX's own call of an executable checks and places every argument again. Between the parts of one program there is
nothing to check: a value is a buffer on the right device. So an executable is entered at its PJRT binding, and its raw
results become arrays in C++.
"""

import copy
import functools
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from jax._src import array, core
from jax._src.interpreters import pxla
from jax._src.lib import xla_client as xc
from jax._src.random import prng
from jax._src.sharding_impls import make_single_device_sharding

from prejit._jax.jaxprs import dtype_impl
from prejit._jax.pieces import physical_aval

__all__ = [
    "check_arguments",
    "copied",
    "costs",
    "enter",
    "give_up",
    "guard",
    "is_as_needed",
    "kept_inputs",
    "key_wrapper",
    "needs_effects",
    "on_device",
    "place_constants",
    "raw_handlers",
    "result_handlers",
    "taker",
]

Handler = Any


def needs_effects(executable: Any) -> bool:
    """Say whether an executable runs Python or keeps an order of effects, and so must be called JAX's way."""
    call = executable.unsafe_call
    return bool(call.ordered_effects or call.has_unordered_effects or call.has_host_callbacks or call.mut is not None)


def kept_inputs(executable: Any) -> list[int]:
    """Return the positions of the inputs that the executable really takes."""
    return sorted(executable._kept_var_idx)


def enter(executable: Any) -> Callable[[Sequence[Any]], Any]:
    """Return what runs the executable on the buffers it takes; the result has `consume_with_handlers`."""
    return executable.xla_executable.execute_sharded


def raw_handlers(out_avals: Sequence[Any], device: Any) -> list[Handler]:
    """Return what makes arrays of results that stay inside a program."""
    sharding = make_single_device_sharding(device)
    return [pxla.global_aval_to_result_handler(physical_aval(aval), sharding, False) for aval in out_avals]


def result_handlers(out_avals: Sequence[Any], shardings: Sequence[Any], *, is_committed: bool) -> list[Handler]:
    """Return what makes arrays of results that a user gets; of typed keys, the arrays of integers behind them."""
    return [
        pxla.global_aval_to_result_handler(physical_aval(aval), sharding, is_committed)
        for aval, sharding in zip(out_avals, shardings, strict=True)
    ]


def with_effects(executable: Any, handlers: Sequence[Handler]) -> Callable[..., list[Any]]:
    """Return what calls an executable with effects, with other handlers of its results."""
    call = copy.copy(executable.unsafe_call)
    out_handler = copy.copy(call.out_handler)
    out_handler.handlers = list(handlers)
    call.out_handler = out_handler
    return call


def taker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what takes some elements of a list, as a tuple."""
    if not places:
        return lambda registers: ()
    if len(places) == 1:
        place = places[0]
        return lambda registers: (registers[place],)
    return itemgetter(*places)


def is_as_needed(value: Any, device: Any) -> bool:
    """Say whether an argument can be handed to an executable on a device as it is."""
    return (
        type(value) is array.ArrayImpl
        and len(value.sharding.device_set) == 1
        and next(iter(value.sharding.device_set)) == device
        and value.sharding.memory_kind in (None, device.default_memory().kind)
    )


def on_device(device: Any) -> Callable[[Any], Any]:
    """Return what puts an argument on a device as JAX does when it calls an executable."""
    sharding = make_single_device_sharding(device)
    copy_semantics = [xc.ArrayCopySemantics.REUSE_INPUT]

    def place(value: Any) -> Any:
        (placed,) = pxla.shard_args([sharding], [None], copy_semantics, [core.full_lower(value)])
        return placed

    return place


def key_wrapper(aval: Any) -> Callable[[Any], Any] | None:
    """Return what makes typed PRNG keys of the array behind them, or None for another type."""
    impl = dtype_impl(aval.dtype)
    return None if impl is None else functools.partial(prng.PRNGKeyArray, impl)


def place_constants(consts: Sequence[Any], device: Any) -> list[Any]:
    """Put copies of constants on a device."""
    place = on_device(device)
    with jax.transfer_guard("allow"):  # under `jax.jit` there would be nothing to move
        return [place(copied(const)) for const in consts]


def copied(const: Any) -> Any:
    """Return a constant that stays what it is.

    The user may write to a NumPy array, or delete or donate a JAX array, which under `jax.jit` is baked in.
    """
    if isinstance(const, jax.Array):
        return jax.device_put(const, const.sharding, may_alias=False)
    return np.array(const, copy=True) if isinstance(const, np.ndarray) else const


class Found:
    """What the C++ dispatch gives for a call whose signature it knows, in place of a result."""

    __slots__ = ("program",)

    def __init__(self, program: Any) -> None:
        self.program = program


jax.tree_util.register_pytree_node(Found, lambda found: ((), found.program), lambda program, _: Found(program))


def guard(program: Any, empty: Any, nr_leaves: int) -> Any:
    """Return what the C++ dispatch needs to answer a known signature with `Found(program)`.

    It runs an empty executable, which costs less than comparing the arguments' types in Python: 5 us and 0.3 us for
    each argument (2026-12).
    """
    structure = jax.tree_util.tree_structure(Found(program))
    return pxla.MeshExecutableFastpathData(empty.xla_executable, structure, [], [], [], [], [False] * nr_leaves, [], [])


def single_device(device: Any) -> Any:
    """Return the placement of a whole array on one device."""
    return make_single_device_sharding(device)


def check_arguments(flat: Sequence[Any], used: Sequence[int], given_up: Collection[int]) -> None:
    """Raise what JAX raises if an argument was deleted already, or is given up and used a second time.

    Args:
        flat: Arguments.
        used: Positions of those that the program reads.
        given_up: Positions of those whose buffers the caller gives up.
    """
    for n in used:
        value = flat[n]
        if type(value) is array.ArrayImpl and value.is_deleted():
            value._check_if_deleted()
    if not given_up or len({id(flat[n]) for n in used}) == len(used):
        return
    first_use: dict[int, tuple[int, int]] = {}
    for place, n in enumerate(used):
        first = first_use.setdefault(id(flat[n]), (place, n))
        if first[1] == n or not isinstance(flat[n], jax.Array):
            continue
        before, now = first[1] in given_up, n in given_up
        if before or now:
            what, toy = _TWICE[before, now]
            raise jax.errors.JaxRuntimeError(
                f"INVALID_ARGUMENT: Attempt to {what} Execute() (flattened argument {place}, replica 0, partition 0, "
                f"first use: {first[0]}). Toy example for this bug: `{toy}`."
            )


_TWICE = {
    (True, False): ("use a buffer that was previously donated in the same call to", "f(donate(a), a)"),
    (False, True): ("donate a buffer which is also used by the same call to", "f(a, donate(a))"),
    (True, True): ("donate the same buffer twice in", "f(donate(a), donate(a))"),
}


def give_up(value: Any) -> None:
    """Delete an argument whose buffer was given up, if no executable has taken it."""
    if isinstance(value, jax.Array) and not value.is_deleted():
        value.delete()


def costs(executable: Any) -> dict[str, float]:
    """Return XLA's estimate of one run of an executable; empty where the backend gives none."""
    found = executable.cost_analysis() or {}
    found = found[0] if isinstance(found, list) else found
    return {name: float(value) for name, value in found.items() if value >= 0}


def memory_stats(executable: Any) -> tuple[int, int]:
    """Return the bytes that an executable takes for itself while it runs, and those of its code."""
    stats = executable.memory_analysis()
    if stats is None:
        return 0, 0
    return int(stats.temp_size_in_bytes), int(stats.generated_code_size_in_bytes)
