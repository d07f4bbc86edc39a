"""Programs of every kind that JAX makes, for digests that must hold in any process. Run as a script it prints them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


ZOO = {}


def z(*specs):
    def deco(f):
        ZOO[f.__name__] = (f, specs)
        return f

    return deco


@z(f32(4))
def scan_(x):
    return lax.scan(lambda c, y: (c + y, c * y), 0.0, x)


@z(f32())
def while_(x):
    return lax.while_loop(lambda c: c < 10.0, lambda c: c * 2.0, x)


@z(i32(), f32(3))
def cond_(i, x):
    return lax.switch(i, [lambda x: x, lambda x: x * 2, lambda x: jnp.sin(x)], x)


@z(f32(3))
def fori(x):
    return lax.fori_loop(0, 5, lambda i, c: c * i, x)


@z(f32(1, 8, 8, 3), f32(3, 3, 3, 4))
def conv(x, k):
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@z(f32(5, 4), i32(3))
def gather(x, i):
    return x[i]


@z(f32(5, 4), i32(3), f32(3, 4))
def scatter(x, i, y):
    return x.at[i].add(y, mode="drop")


@z(f32(8))
def fft(x):
    return jnp.fft.rfft(x), jnp.fft.fft(x)


@z(f32(3, 3))
def linalg(x):
    return (
        jnp.linalg.inv(x),
        jnp.linalg.eigh(x),
        jnp.linalg.svd(x),
        jnp.linalg.qr(x),
        jnp.linalg.cholesky(x),
        jnp.linalg.det(x),
    )


@z()
def rnd_typed():
    k = jax.random.key(0)
    return jax.random.normal(k, (3,)), jax.random.split(k), jax.random.bits(k, (2,))


@z(jax.ShapeDtypeStruct((2,), jnp.uint32))
def rnd_raw(k):
    return (
        jax.random.uniform(k, (3,)),
        jax.random.permutation(k, 5),
        jax.random.categorical(k, jnp.zeros(3)),
        jax.random.gamma(k, 2.0),
    )


@z(jax.eval_shape(lambda: jax.random.key(0, impl="rbg")))
def rnd_rbg(k):
    return jax.random.normal(k, (3,)), jax.random.fold_in(k, 3)


@z(f32(5, 3))
def sort_(x):
    return jnp.sort(x), jnp.argsort(x, axis=0), lax.top_k(x, 2), lax.sort((x, x), num_keys=2)


@z(f32(5))
def cjvp(x):
    return jax.nn.relu(x), jax.nn.softmax(x), jax.scipy.special.logsumexp(x), jax.nn.gelu(x), jax.nn.silu(x)


@jax.custom_vjp
def cv(x):
    return jnp.sin(x)


cv.defvjp(lambda x: (jnp.sin(x), x), lambda r, g: (g * jnp.cos(r),))


@z(f32(5))
def cvjp(x):
    return cv(x) * 2


@z(f32(5))
def cvjp_grad(x):
    return jax.grad(lambda x: cv(x).sum())(x)


@z(f32(5, 5))
def remat(x):
    return jax.checkpoint(lambda x: jnp.sin(x @ x).sum(), policy=jax.checkpoint_policies.dots_saveable)(x)


@z(f32(5, 5))
def remat_grad(x):
    return jax.grad(jax.checkpoint(lambda x: jnp.sin(checkpoint_name(x @ x, "a")).sum()))(x)


def mesh():
    return Mesh(np.array(jax.devices()[:1]), ("i",))


@z(f32(4, 2))
def shmap(x):
    return jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh(), in_specs=P("i"), out_specs=P())(x)


@z(f32(4, 2))
def wsc(x):
    return lax.with_sharding_constraint(x * 2, NamedSharding(mesh(), P("i")))


@z(f32(8))
def ascan(x):
    return lax.associative_scan(jnp.add, x)


@z(f32(8, 3))
def cums(x):
    return jnp.cumsum(x, 0), jnp.cumprod(x), lax.cummax(x), lax.cumlogsumexp(x)


@z(f32(4, 5), f32(5, 6))
def einsum(a, b):
    return jnp.einsum("ij,jk->ki", a, b, precision="highest")


@z(f32(8), i32())
def dyn(x, i):
    return lax.dynamic_slice(x, (i,), (3,)), lax.dynamic_update_slice(x, x[:2], (i,))


@z(f32(8, 4), f32(3, 4, 5), i32(3))
def ragged(x, y, g):
    return lax.ragged_dot(x, y, g)


@z(f32(8, 4))
def vmapped(x):
    return jax.vmap(lambda v: jnp.dot(v, v))(x)


@z(f32(4))
def nested_jit(x):
    g = jax.jit(lambda y: jnp.sin(y) + 1)
    return g(g(x))


@z(f32(8, 4))
def reduces(x):
    return (
        x.sum(0),
        x.max(),
        x.argmax(1),
        x.prod(),
        jnp.any(x > 0),
        lax.reduce(x, 0.0, lax.add, (0,)),
        lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"),
        lax.reduce_precision(x, 8, 7),
    )


@z(f32(8, 4))
def shapes(x):
    return (
        x.T,
        x.reshape(4, 8),
        jnp.pad(x, 1),
        x[::-1],
        jnp.concatenate([x, x]),
        x.astype(jnp.bfloat16),
        jnp.squeeze(x[None]),
        jnp.broadcast_to(x, (2, 8, 4)),
        lax.bitcast_convert_type(x, jnp.int32),
        jnp.where(x > 0, x, 0.0),
        jnp.clip(x, 0, 1),
        x.astype(jnp.int4),
    )


@z(f32(8))
def misc(x):
    return (
        lax.optimization_barrier(x),
        lax.stop_gradient(x),
        jnp.round(x),
        x**3,
        lax.rsqrt(x),
        lax.erf(x),
        lax.exp(x),
        jax.nn.one_hot(x.astype(int), 3),
        jnp.linspace(0, 1, 3),
        lax.iota(jnp.int32, 3),
    )


CONST = np.arange(3.0, dtype=np.float32)


@z(f32(3))
def const(x):
    return x + CONST + jnp.asarray([1.0, 2.0, 3.0])


@z(f32(3))
def hess(x):
    return jax.hessian(lambda x: jnp.sum(jnp.tanh(x) ** 2))(x)


@z(f32(3, 3), f32(3))
def solve(a, b):
    return jnp.linalg.solve(a, b), jax.scipy.linalg.lu(a), jax.scipy.linalg.expm(a)


@z(f32(3, 3), f32(3))
def clinsolve(a, b):
    return jax.scipy.sparse.linalg.cg(a, b)


@z(f32(3))
def interp(x):
    return (
        jnp.interp(x, x, x),
        jnp.searchsorted(x, x),
        jnp.histogram(x)[0],
        jnp.unique(x, size=3),
        jnp.nonzero(x, size=2),
    )


@z(f32(4, 4, 2))
def image(x):
    return jax.image.resize(x, (8, 8, 2), "bilinear")


@z(f32(2, 8, 4), f32(2, 8, 4))
def attn(q, k):
    return jax.nn.dot_product_attention(q[:, :, None], k[:, :, None], k[:, :, None])


@z(f32(4))
def ref_(x):
    r = jax.new_ref(x) if hasattr(jax, "new_ref") else jax.array_ref(x)
    r[...] += 1
    return r[...]


@z(f32(4))
def meta(x):
    with set_xla_metadata(a="b"):
        return x * 2


@z(f32(4))
def ffi(x):
    return jax.ffi.ffi_call("foo", jax.ShapeDtypeStruct((4,), jnp.float32), has_side_effect=True)(
        x, a=np.int32(3), b="s"
    )


@z(f32(4))
def devput(x):
    return jax.device_put(x, jax.devices()[0])


@z(f32(4))
def platdep(x):
    return lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)


@z(f32(8, 4), f32(4, 8))
def dota(x, y):
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision=lax.DotAlgorithmPreset.F32_F32_F32), lax.dot(
        x, y, preferred_element_type=jnp.float32
    )


@z(f32(8))
def acc(x):
    return lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST), lax.tan(x, accuracy=lax.Tolerance(1e-5, 1e-5, 2))


def digests():
    from prejit.key import program_digest

    return {name: program_digest(jax.make_jaxpr(fun)(*specs)).digest for name, (fun, specs) in ZOO.items()}


if __name__ == "__main__":
    print(json.dumps(digests()))
