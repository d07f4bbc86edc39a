"""Random programs for `test_linked_programs.py`: plain data that Hypothesis draws and shrinks, and what it means.

A program has a pool of values of a few kinds. A step takes some of them, picked by number, and adds its results; it is
an operation or a call of a layer, whose body is such a program too. No operation makes a jump where its inputs change a
little, so that what is rounded otherwise stays close.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

import prejit

N = 6
FLOATS = "MVS"  # a matrix, a vector, a number
KINDS = FLOATS + "IK"  # and a vector of small integers, a typed PRNG key


@dataclasses.dataclass(frozen=True)
class Step:
    """Apply `what`, the name of an operation or the number of a layer, to the values that `picks` picks."""

    what: str | int
    picks: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Layer:
    """A function of values of these kinds: its steps, what it returns, and how it is wrapped."""

    takes: str
    steps: tuple[Step, ...]
    returns: tuple[tuple[str, int], ...]
    style: str


@dataclasses.dataclass(frozen=True)
class Spec:
    """A program: layers that may call earlier ones, steps, results, what is done to it, and what is donated."""

    layers: tuple[Layer, ...]
    steps: tuple[Step, ...]
    returns: tuple[tuple[str, int], ...]
    transform: str
    donated: tuple[int, ...]
    hoist_bytes: int
    feed: str

    def uses(self, start: str) -> bool:
        """Say whether any operation's name starts so."""
        steps = [step for body in (self, *self.layers) for step in body.steps]
        return any(isinstance(step.what, str) and step.what.startswith(start) for step in steps)

    @property
    def is_low(self) -> bool:
        """Whether it computes in types of 16 bits, of which XLA rounds only some."""
        return self.uses("low")

    @property
    def is_loud(self) -> bool:
        """Whether it calls back while it runs."""
        return self.uses("loud")


def _normed(a):
    centred = a - a.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-2)


def _scanned(a, v):
    def body(carry, row):
        carry = jnp.tanh(carry * row + 0.5)
        return carry, carry * row

    last, rows = lax.scan(body, v, a)
    return rows, last


heard: list[float] = []
"""What the callbacks of programs got, in their order."""


def _hear(value):
    heard.append(float(value))


def _loud(a):
    jax.debug.callback(_hear, a.mean())
    return a * 0.9


def _loud_and_asking(a):
    # Its value passes the callback, which transformations take for a constant.
    told = jax.pure_callback(lambda v: np.asarray(v) * np.float32(0.5), jax.ShapeDtypeStruct((), "float32"),
                             lax.stop_gradient(a.mean()), vmap_method="sequential")  # fmt: skip
    return a + lax.stop_gradient(told)


_SMALL = np.linspace(-1, 1, N * N, dtype="float32").reshape(N, N)
_OTHER = jnp.cos(jnp.asarray(_SMALL) * 3)

# name: (kinds it takes, kinds it gives, function)
OPERATIONS: dict[str, tuple[str, str, Any]] = {
    "dot": ("MM", "M", lambda a, b: a @ b / 2.5),
    "add": ("MM", "M", lambda a, b: a + b),
    "sub": ("MM", "M", lambda a, b: a - b),
    "mul": ("MM", "M", lambda a, b: a * b),
    "tanh": ("M", "M", jnp.tanh),
    "sin": ("M", "M", lambda a: jnp.sin(a) * 1.5),
    "bell": ("M", "M", lambda a: jnp.exp(-a * a)),
    "gelu": ("M", "M", jax.nn.gelu),
    "silu": ("M", "M", jax.nn.silu),
    "scaled": ("M", "M", lambda a: a * 0.37),
    "shifted": ("M", "M", lambda a: a + 0.3),
    "ratio": ("MM", "M", lambda a, b: a / (1 + b * b)),
    "outer": ("VV", "M", lambda v, w: v[:, None] * w),
    "rows": ("MV", "M", lambda a, v: a + v),
    "times": ("MS", "M", lambda a, s: a * s),
    "turned": ("M", "M", lambda a: a.T),
    "softmax": ("M", "M", lambda a: jax.nn.softmax(a, axis=-1)),
    "normed": ("M", "M", _normed),
    "gathered": ("MI", "M", lambda a, i: a[i]),
    "scattered": ("MIV", "M", lambda a, i, v: a.at[i].add(v * 0.5)),
    "joined": ("MM", "M", lambda a, b: jnp.concatenate([a, b])[N // 2 : N // 2 + N]),
    "chosen": ("IMM", "M", lambda i, a, b: jnp.where((i % 2 == 0)[:, None], a, b)),
    "bounded": ("M", "M", lambda a: jnp.clip(a, -1.5, 1.5)),
    "relu": ("M", "M", jax.nn.relu),
    "summed_up": ("M", "M", lambda a: jnp.cumsum(a, 0) / N),
    "sorted": ("M", "M", lambda a: jnp.sort(a, axis=0)),
    "scan": ("MV", "MV", _scanned),
    "loop": ("M", "M", lambda a: lax.fori_loop(0, 3, lambda n, x: jnp.sin(x) + 0.1 * n, a)),
    "cond": ("IM", "M", lambda i, a: lax.cond(i[0] > 2, lambda x: jnp.cos(x) * x, lambda x: x * 0.5, a)),
    "switch": ("IMV", "MV", lambda i, a, v: lax.switch(
        i[1] % 3, [lambda x, y: (x + y, y), lambda x, y: (x * 0.5, x[0]), lambda x, y: (x @ x / 3, y * y)], a, v)),
    "constant": ("M", "M", lambda a: a * _SMALL),
    "other_constant": ("M", "M", lambda a: a @ _OTHER / 2.5),
    "ones": ("", "M", lambda: jnp.ones((N, N)) * 0.5),
    "low_bf16": ("MM", "M", lambda a, b: (a.astype("bfloat16") * b.astype("bfloat16") + 1).astype("float32")),
    "low_f16": ("MM", "M", lambda a, b: (a.astype("float16") @ b.astype("float16") / 3).astype("float32")),
    "by_dot": ("MV", "V", lambda a, v: a @ v / 2.5),
    "column_sum": ("M", "V", lambda a: a.sum(0) / N),
    "column_max": ("M", "V", lambda a: a.max(1)),
    "diagonal": ("M", "V", jnp.diagonal),
    "vadd": ("VV", "V", lambda v, w: v + w),
    "vmul": ("VV", "V", lambda v, w: v * w + 0.25),
    "vtanh": ("V", "V", jnp.tanh),
    "spread": ("S", "V", lambda s: jnp.full((N,), s)),
    "spectrum": ("V", "V", lambda v: jnp.abs(jnp.fft.fft(v) + 10) / 10),
    "complex": ("VV", "V", lambda v, w: jnp.real((v + 1j * w) * jnp.conj(v * 0.5 - 1j))),
    "as_float": ("I", "V", lambda i: i.astype("float32") / N),
    "mean": ("M", "S", lambda a: a.mean()),
    "inner": ("VV", "S", lambda v, w: v @ w / N),
    "peak": ("V", "S", lambda v: v.max()),
    "ssum": ("SS", "S", lambda s, t: s + t),
    "smul": ("SS", "S", lambda s, t: s * t * 0.5),
    "ssin": ("S", "S", jnp.sin),
    "next": ("I", "I", lambda i: (i * 5 + 1) % N),
    "order": ("I", "I", lambda i: jnp.argsort(i)),
    "reversed": ("I", "I", lambda i: i[::-1]),
    "fold": ("KI", "K", lambda k, i: jax.random.fold_in(k, i[0])),
    "split": ("K", "KK", lambda k: tuple(jax.random.split(k))),
    "normal": ("K", "V", lambda k: jax.random.normal(k, (N,))),
    "loud": ("M", "M", _loud),
    "loud_asking": ("M", "M", _loud_and_asking),
}  # fmt: skip
QUIET = [name for name in OPERATIONS if not name.startswith("loud")]
LOUD = [*QUIET, *["loud", "loud_asking"] * 8]

STYLES = ["jit", "jit", "jit", "component", "separate", "inline", "outline", "checkpoint", "custom_vjp", "custom_jvp",
          "vmap", "plain"]  # fmt: skip
TRANSFORMS = ["none", "none", "none", "value_and_grad", "grad", "jvp", "vmap", "checkpoint", "steps"]
INPUTS = "MMVVSIK"

_picks = st.lists(st.integers(0, 9), min_size=3, max_size=3).map(tuple)
_results = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9)), min_size=1, max_size=5).map(tuple)


@st.composite
def _steps(draw, names, nr_layers, count):
    whats = st.sampled_from(names)
    if nr_layers:
        whats = st.one_of(whats, st.integers(0, nr_layers - 1), st.integers(0, nr_layers - 1))
    steps = st.builds(Step, whats, _picks)
    return tuple(draw(st.lists(steps, min_size=count[0], max_size=count[1])))


@st.composite
def _layers(draw, names):
    return tuple(
        [
            Layer(
                takes=draw(st.sampled_from(["MM", "MV", "MMV", "MVSIK", "MI", "VVS", "MMMV", "K", "MK"])),
                steps=draw(_steps(names, number, (1, 8))),
                returns=draw(_results),
                style=draw(st.sampled_from(STYLES)),
            )
            for number in range(draw(st.integers(1, 3)))
        ]
    )


@st.composite
def specs(draw, *, is_loud=False):
    """Draw a program, with callbacks or without."""
    names = LOUD if is_loud else QUIET
    layers = draw(_layers(names))
    transform = draw(st.sampled_from(TRANSFORMS))
    if transform == "jvp":  # which a function with a reverse rule of its own does not have
        layers = tuple([dataclasses.replace(one, style=one.style.replace("vjp", "jvp")) for one in layers])
    return Spec(
        layers=layers,
        steps=draw(_steps(names, len(layers), (2, 12))),
        returns=draw(_results),
        transform=transform,
        donated=tuple(sorted(draw(st.sets(st.integers(0, len(INPUTS) - 1), max_size=3)))),
        hoist_bytes=draw(st.sampled_from([65536, 64])),
        feed=draw(st.sampled_from(["jax", "jax", "numpy", "scalar"])),
    )


# What a program means


def _start(values, kinds):
    """Make a pool; a kind that nobody gave has a value all the same."""
    pool = {kind: [] for kind in KINDS}
    for kind, value in zip(kinds, values, strict=True):
        pool[kind].append(value)
    defaults = {
        "M": lambda: jnp.eye(N), "V": lambda: jnp.arange(N, dtype="float32") / N, "S": lambda: 0.5,
        "I": lambda: jnp.arange(N), "K": lambda: jax.random.key(7),
    }  # fmt: skip
    for kind, make in defaults.items():
        if not pool[kind]:
            pool[kind].append(make())
    return pool


def _run(steps, pool, layers):
    for step in steps:
        if isinstance(step.what, int):
            takes, (function, gives) = layers[step.what][0], layers[step.what][1:]
        else:
            takes, gives, function = OPERATIONS[step.what]
        # Late values are picked more often: programs get deep.
        values = [pool[kind][-1 - step.picks[n % 3] % len(pool[kind])] for n, kind in enumerate(takes)]
        out = function(*values)
        for kind, value in zip(gives, out if isinstance(out, tuple) else (out,), strict=True):
            pool[kind].append(value)
    return pool


def _returned(returns, pool):
    return tuple([pool[kind][-1 - pick % len(pool[kind])] for kind, pick in returns])


def is_float(value):
    """Say whether a value can be differentiated."""
    return jnp.issubdtype(jnp.asarray(value).dtype if isinstance(value, float) else value.dtype, jnp.inexact)


def _dressed(body, style):
    """Wrap a layer's body."""
    if style == "plain":
        return body
    if style == "jit":
        return jax.jit(body)
    if style == "checkpoint":
        return jax.jit(jax.checkpoint(body))
    if style == "custom_vjp":
        with_rule = jax.custom_vjp(body)

        def fwd(*args):
            out, pull = jax.vjp(body, *args)
            return out, pull

        with_rule.defvjp(fwd, lambda pull, g: pull(g))
        return jax.jit(with_rule)
    if style == "custom_jvp":
        with_rule = jax.custom_jvp(body)
        with_rule.defjvp(lambda primals, tangents: jax.jvp(body, primals, tangents))
        return jax.jit(with_rule)
    if style == "vmap":
        inner = jax.jit(body)

        def mapped(*args):
            twice = [jnp.stack([v, v * 0.5]) if is_float(v) else jnp.stack([v, v]) for v in map(_array, args)]
            return tuple([o.mean(0) if is_float(o) else o[0] for o in jax.vmap(inner)(*twice)])

        return mapped
    return prejit.component(body, link="auto" if style == "component" else style)


def _array(value):
    return jnp.float32(value) if isinstance(value, float) else value


def build(spec):
    """Make the function that a spec describes; its layers are new."""
    layers: list[tuple[str, Any, str]] = []
    for layer in spec.layers:
        known = list(layers)

        def body(*args, layer=layer, known=known):
            return _returned(layer.returns, _run(layer.steps, _start(args, layer.takes), known))

        layers.append((layer.takes, _dressed(body, layer.style), "".join(kind for kind, _ in layer.returns)))

    def program(*args):
        return _returned(spec.returns, _run(spec.steps, _start(args, INPUTS), layers))

    return _transformed(program, spec.transform)


def _loss(out):
    return sum(jnp.sum(leaf * jnp.cos(leaf)) for leaf in out if is_float(leaf)) * jnp.float32(0.1)


def _transformed(program, transform):
    floats = tuple([n for n, kind in enumerate(INPUTS) if kind in FLOATS])

    def loss(*args):
        out = program(*args)
        return _loss(out), out

    if transform == "value_and_grad":
        return jax.value_and_grad(loss, floats, has_aux=True)
    if transform == "grad":
        return jax.grad(lambda *args: loss(*args)[0], floats)
    if transform == "checkpoint":
        return jax.value_and_grad(lambda *args: jax.checkpoint(loss)(*args)[0], floats)
    if transform == "jvp":

        def pushed(*args):
            def of_floats(*some):
                full = list(args)
                for n, value in zip(floats, some, strict=True):
                    full[n] = value
                return loss(*full)[0]

            some = [_array(args[n]) for n in floats]
            return jax.jvp(of_floats, tuple(some), tuple([jnp.ones_like(v) for v in some]))

        return pushed
    if transform == "vmap":

        def mapped(*args):
            one = _array(args[0])
            return jax.vmap(lambda a: program(a, *args[1:]))(jnp.stack([one, one * 0.5, -one]))

        return mapped
    if transform == "steps":

        def trained(*args):
            args = list(args)
            for _ in range(2):
                grads = jax.grad(lambda *some: loss(*some)[0], floats)(*args)
                for n, g in zip(floats, grads, strict=True):
                    args[n] = args[n] - 0.1 * g
            return tuple(args)

        return trained
    return program


def arguments(feed, seed=0, nudge=0.0):
    """Make the arguments: arrays of JAX's, of numpy's, or with a Python number; `nudge` moves each by that share."""
    rng = np.random.default_rng(seed)
    near = np.random.default_rng(seed + 1)
    made: list[Any] = []
    for kind in INPUTS:
        if kind == "K":
            made.append(jax.random.key(seed))
        elif kind == "I":
            made.append(rng.integers(0, N, N).astype("int32"))
        else:
            shape = {"M": (N, N), "V": (N,), "S": ()}[kind]
            value = rng.normal(size=shape).astype("float32")
            made.append((value * (1 + nudge * near.choice([-1, 1], size=shape))).astype("float32"))
    if feed == "scalar":
        made[INPUTS.index("S")] = float(made[INPUTS.index("S")])
    if feed == "jax":
        made = [value if n == len(INPUTS) - 1 else jnp.array(value) for n, value in enumerate(made)]
    return made


@functools.cache
def raw(dtype):
    """Return a function that gives a leaf's numbers."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return lambda leaf: np.asarray(jax.random.key_data(leaf))
    return np.asarray
