"""Programs that differ in one thing that changes what they compute have different digests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from prejit.key import program_digest

VEC = jax.ShapeDtypeStruct((4,), jnp.float32)
MAT = jax.ShapeDtypeStruct((4, 4), jnp.float32)
KEY = jax.eval_shape(lambda: jax.random.key(0))


def conv(x, k, **changes):
    options = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")} | changes
    return lax.conv_general_dilated(x, k, **options)


IMAGE = jax.ShapeDtypeStruct((1, 4, 4, 4), jnp.float32)
KERNEL = jax.ShapeDtypeStruct((4, 4, 4, 4), jnp.float32)
INDEX = jax.ShapeDtypeStruct((2,), jnp.int32)
NUMBERS = np.arange(6, dtype=np.float32)
SAME_BYTES = np.zeros(2, np.float32), np.zeros(2, np.int32)


def mesh():
    return Mesh(np.array(jax.devices()[:1]), ("i",))


def mapped(**changes):
    options = {"mesh": mesh(), "in_specs": P("i"), "out_specs": P("i")} | changes
    return jax.shard_map(lambda x: x * 2, **options)


def metadata(**entries):
    from jax.experimental.xla_metadata import set_xla_metadata

    def fun(x):
        with set_xla_metadata(**entries):
            return x * 2

    return fun


def scan(**options):
    return lambda x: lax.scan(lambda c, y: (c + y, c), jnp.float32(0), x, **options)


def under(setting, fun):
    def run(*args):
        with setting:
            return fun(*args)

    return run


PAIRS = {
    "shape": (lambda x: x + 1, [VEC], lambda x: x + 1, [MAT]),
    "dtype": (lambda x: x + 1, [VEC], lambda x: x + 1, [jax.ShapeDtypeStruct((4,), jnp.bfloat16)]),
    "weak type": (lambda x: x, [1.0], lambda x: x, [np.float32(1)]),
    "raw and typed key": (lambda k: k, [KEY], lambda k: k, [jax.ShapeDtypeStruct((2,), jnp.uint32)]),
    "kind of key": (lambda k: k, [KEY], lambda k: k, [jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))]),
    "literal": (lambda x: x * 2, [VEC], lambda x: x * 3, [VEC]),
    "sign of zero": (lambda x: x + 0.0, [VEC], lambda x: x + -0.0, [VEC]),
    "literal of another type": (lambda x: lax.full((2,), 1, jnp.int32), [VEC], lambda x: lax.full((2,), 1.0), [VEC]),
    "one bit of a literal": (
        lambda x: x * 0.1,
        [VEC],
        lambda x: x * float(np.nextafter(np.float32(0.1), np.float32(1))),
        [VEC],
    ),
    "operation": (lambda x: jnp.sin(x), [VEC], lambda x: jnp.cos(x), [VEC]),
    "order of operands": (lambda x, y: x - y, [VEC, VEC], lambda x, y: y - x, [VEC, VEC]),
    "order of arguments": (lambda x, y: (x, y), [VEC, VEC], lambda x, y: (y, x), [VEC, VEC]),
    "same variable twice": (lambda x, y: x + y, [VEC, VEC], lambda x, y: x + x, [VEC, VEC]),
    "number of outputs": (lambda x: x, [VEC], lambda x: (x, x), [VEC]),
    "axis of a reduction": (lambda x: x.sum(0), [MAT], lambda x: x.sum(1), [MAT]),
    "axis of a sort": (lambda x: jnp.sort(x, 0), [MAT], lambda x: jnp.sort(x, 1), [MAT]),
    "stability of a sort": (lambda x: lax.sort(x), [VEC], lambda x: lax.sort(x, is_stable=False), [VEC]),
    "permutation": (lambda x: lax.transpose(x, (0, 1)), [MAT], lambda x: lax.transpose(x, (1, 0)), [MAT]),
    "bounds of a slice": (lambda x: x[:2], [VEC], lambda x: x[1:3], [VEC]),
    "precision": (
        functools.partial(jnp.dot, precision="highest"),
        [MAT, MAT],
        functools.partial(jnp.dot, precision="default"),
        [MAT, MAT],
    ),
    "algorithm of a dot": (
        functools.partial(lax.dot, precision=lax.DotAlgorithmPreset.F32_F32_F32),
        [MAT, MAT],
        functools.partial(lax.dot, precision=lax.DotAlgorithmPreset.BF16_BF16_F32),
        [MAT, MAT],
    ),
    "accumulation type": (
        functools.partial(lax.dot, preferred_element_type=jnp.float32),
        [MAT, MAT],
        lambda x, y: lax.dot(x, y),
        [MAT, MAT],
    ),
    "accuracy": (lambda x: lax.exp(x), [VEC], lambda x: lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST), [VEC]),
    "tolerance": (
        lambda x: lax.exp(x, accuracy=lax.Tolerance(1e-5, 1e-5, 2)),
        [VEC],
        lambda x: lax.exp(x, accuracy=lax.Tolerance(1e-5, 1e-5, 3)),
        [VEC],
    ),
    "layout of a convolution": (
        conv,
        [IMAGE, KERNEL],
        functools.partial(conv, dimension_numbers=("NHWC", "HWIO", "NWHC")),
        [IMAGE, KERNEL],
    ),
    "strides": (conv, [IMAGE, KERNEL], functools.partial(conv, window_strides=(1, 2)), [IMAGE, KERNEL]),
    "padding": (conv, [IMAGE, KERNEL], functools.partial(conv, padding="VALID"), [IMAGE, KERNEL]),
    "mode of a scatter": (
        lambda x, i: x.at[i].add(1.0, mode="drop"),
        [VEC, INDEX],
        lambda x, i: x.at[i].add(1.0, mode="clip"),
        [VEC, INDEX],
    ),
    "unique indices": (
        lambda x, i: x.at[i].set(1.0, unique_indices=True),
        [VEC, INDEX],
        lambda x, i: x.at[i].set(1.0),
        [VEC, INDEX],
    ),
    "kind of FFT": (lambda x: jnp.fft.fft(x), [VEC], lambda x: jnp.fft.ifft(x), [VEC]),
    "content of a constant": (lambda x: x + NUMBERS, [1.0], lambda x: x + NUMBERS[::-1].copy(), [1.0]),
    "shape of a constant": (lambda x: x + NUMBERS.reshape(2, 3), [1.0], lambda x: x + NUMBERS.reshape(3, 2), [1.0]),
    "dtype of a constant": (lambda x: x + SAME_BYTES[0], [1.0], lambda x: x + SAME_BYTES[1], [1.0]),
    "layout of a constant": (
        lambda x: x + NUMBERS.reshape(2, 3).T,
        [1.0],
        lambda x: x + NUMBERS.reshape(3, 2),
        [1.0],
    ),
    "direction of a scan": (scan(), [VEC], scan(reverse=True), [VEC]),
    "unrolling": (scan(), [VEC], scan(unroll=2), [VEC]),
    "branch": (
        lambda i, x: lax.cond(i, jnp.sin, jnp.cos, x),
        [True, VEC],
        lambda i, x: lax.cond(i, jnp.cos, jnp.sin, x),
        [True, VEC],
    ),
    "loop condition": (
        lambda x: lax.while_loop(lambda c: c < 5, lambda c: c * 2, x),
        [1.0],
        lambda x: lax.while_loop(lambda c: c < 6, lambda c: c * 2, x),
        [1.0],
    ),
    "inner donation": (
        jax.jit(lambda x: x + 1),
        [VEC],
        jax.jit(lambda x: x + 1, donate_argnums=0),
        [VEC],
    ),
    "inlining": (jax.jit(lambda x: x + 1), [VEC], lambda x: x + 1, [VEC]),
    "inner body": (lambda x: jax.jit(jnp.sin)(x), [VEC], lambda x: jax.jit(jnp.cos)(x), [VEC]),
    "prevent_cse": (
        jax.checkpoint(lambda x: jnp.sin(x)),
        [VEC],
        jax.checkpoint(lambda x: jnp.sin(x), prevent_cse=False),
        [VEC],
    ),
    "spec of a constraint": (
        lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh(), P("i"))),
        [MAT],
        lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh(), P(None, "i"))),
        [MAT],
    ),
    "spec of a shard_map": (mapped(), [MAT], mapped(in_specs=P(None, "i"), out_specs=P(None, "i")), [MAT]),
    "name of a mesh axis": (
        mapped(),
        [MAT],
        mapped(mesh=Mesh(np.array(jax.devices()[:1]), ("j",)), in_specs=P("j"), out_specs=P("j")),
        [MAT],
    ),
    "XLA metadata": (metadata(a="1"), [VEC], metadata(a="2"), [VEC]),
    "metadata or none": (metadata(a="1"), [VEC], lambda x: x * 2, [VEC]),
    "partitionable random bits": (
        under(jax.threefry_partitionable(True), jax.random.bits),
        [KEY],
        under(jax.threefry_partitionable(False), jax.random.bits),
        [KEY],
    ),
    "attribute of a foreign call": (
        lambda x: jax.ffi.ffi_call("f", VEC)(x, n=np.int32(1)),
        [VEC],
        lambda x: jax.ffi.ffi_call("f", VEC)(x, n=np.int32(2)),
        [VEC],
    ),
    "type of an attribute": (
        lambda x: jax.ffi.ffi_call("f", VEC)(x, n=np.int32(1)),
        [VEC],
        lambda x: jax.ffi.ffi_call("f", VEC)(x, n=np.int64(1)),
        [VEC],
    ),
    "side effect": (
        lambda x: jax.ffi.ffi_call("f", VEC)(x),
        [VEC],
        lambda x: jax.ffi.ffi_call("f", VEC, has_side_effect=True)(x),
        [VEC],
    ),
    "device of a transfer or none": (
        lambda x: jax.device_put(x, jax.devices()[0]),
        [VEC],
        lambda x: x,
        [VEC],
    ),
    "platform of a branch": (
        lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
        [VEC],
        lambda x: lax.platform_dependent(x, tpu=jnp.sin, default=jnp.cos),
        [VEC],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_differs_by(name):
    one, one_specs, other, other_specs = PAIRS[name]
    first = program_digest(jax.make_jaxpr(one)(*one_specs)).digest
    assert first == program_digest(jax.make_jaxpr(one)(*one_specs)).digest
    assert first != program_digest(jax.make_jaxpr(other)(*other_specs)).digest


def test_payload_of_nan_counts():
    quiet = np.uint32(0x7FC00000).view(np.float32)
    other = np.uint32(0x7FC00001).view(np.float32)
    one, two = np.array([quiet]), np.array([other])
    first = program_digest(jax.make_jaxpr(lambda x: x + one)(1.0)).digest
    assert first == program_digest(jax.make_jaxpr(lambda x: x + one.copy())(1.0)).digest
    assert first != program_digest(jax.make_jaxpr(lambda x: x + two)(1.0)).digest
