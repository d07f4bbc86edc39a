"""Values and functions by content: what must agree, what must differ, what is refused and where."""

import collections
import dataclasses
import enum
import functools
import itertools
import math
import sys
import textwrap
import threading
import types
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from prejit.errors import KeyingError
from prejit.key import fingerprint, treedef_token


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flag(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: object
    y: object = 0


@dataclasses.dataclass(slots=True)
class Slotted:
    x: object


Pair = collections.namedtuple("Pair", "a b")


class Sim:
    def __init__(self, dt):
        self.dt = dt

    def step(self, x):
        return x + self.dt


class Model(eqx.Module):
    w: jax.Array
    act: object = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, x):
        return self.act(self.w * x)


class Text(str):
    __slots__ = ()


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (g * 2,))


def define(source, name="f", **scope):
    """Make a function from source, as a notebook does."""
    exec(compile(textwrap.dedent(source), "<cell>", "exec"), scope)
    return scope[name]


MESH = Mesh(np.array(jax.devices("cpu")[:1]), ("i",))

# All of these differ from each other.
DISTINCT = {
    "int": 1,
    "bool": True,
    "float": 1.0,
    "zero": 0.0,
    "negative zero": -0.0,
    "int zero": 0,
    "false": False,
    "complex": 1 + 0j,
    "complex with negative zero": complex(1, -0.0),
    "big int": 1 << 20_000,
    "bigger int": (1 << 20_000) + 1,
    "nan": math.nan,
    "inf": math.inf,
    "none": None,
    "ellipsis": ...,
    "text": "1",
    "empty text": "",
    "surrogate": "\ud800",
    "text subclass": Text("1"),
    "bytes": b"1",
    "bytearray": bytearray(b"1"),
    "int8": np.int8(1),
    "int32": np.int32(1),
    "int64": np.int64(1),
    "float32": np.float32(1),
    "float64": np.float64(1),
    "bfloat16": jnp.bfloat16(1),
    "numpy bool": np.bool_(True),
    "datetime": np.datetime64("2020-01-01", "D"),
    "datetime in seconds": np.datetime64("2020-01-01", "s"),
    "tuple": (1, 2),
    "list": [1, 2],
    "nested tuple": ((1,), 2),
    "other nesting": (1, (2,)),
    "empty tuple": (),
    "empty list": [],
    "empty dict": {},
    "dict": {"a": 1},
    "dict of int": {1: 1},
    "dict of bool": {True: 1},
    "ordered dict": collections.OrderedDict(a=1, b=2),
    "reordered dict": collections.OrderedDict(b=2, a=1),
    "plain dict of two": {"a": 1, "b": 2},
    "default dict": collections.defaultdict(int, a=1),
    "default dict of lists": collections.defaultdict(list, a=1),
    "proxy": types.MappingProxyType({"a": 1}),
    "namespace": types.SimpleNamespace(a=1),
    "set": {1, 2},
    "frozenset": frozenset({1, 2}),
    "deque": collections.deque([1, 2]),
    "bounded deque": collections.deque([1, 2], maxlen=2),
    "slice": slice(1, 2),
    "range": range(1, 2),
    "enum": Color.RED,
    "other member": Color.BLUE,
    "flag": Flag.A,
    "flags": Flag.A | Flag.B,
    "dataclass": Point(1),
    "dataclass of float": Point(1.0),
    "slotted": Slotted(1),
    "namedtuple": Pair(1, 2),
    "object": Sim(1),
    "object of float": Sim(1.0),
    "class": Sim,
    "dataclass type": Point,
    "array": np.arange(6),
    "reshaped": np.arange(6).reshape(2, 3),
    "other shape": np.arange(6).reshape(3, 2),
    "array of float": np.arange(6.0),
    "transposed": np.arange(6).reshape(2, 3).T,
    "zero-dimensional array": np.array(1),
    "empty array": np.zeros((0, 3)),
    "other empty array": np.zeros((3, 0)),
    "record": np.zeros(1, [("a", "i4"), ("b", "f4")]),
    "renamed record": np.zeros(1, [("a", "i4"), ("c", "f4")]),
    "array of objects": np.array([1, "a", None], object),
    "array of text": np.array(["ab"]),
    "jax array": jnp.arange(6),
    "weak jax array": jnp.asarray(1.0),
    "strong jax array": jnp.asarray(1.0, jnp.float32),
    "typed key": jax.random.key(0),
    "other typed key": jax.random.key(1),
    "rbg key": jax.random.key(0, impl="rbg"),
    "raw key": jax.random.PRNGKey(0),
    "dtype": np.dtype("float32"),
    "scalar type": np.float32,
    "jax scalar type": jnp.float32,
    "dtype of keys": jax.random.key(0).dtype,
    "spec": P("i"),
    "replicated spec": P(None, "i"),
    "unconstrained spec": P(P.UNCONSTRAINED),
    "mesh": MESH,
    "abstract mesh": MESH.abstract_mesh,
    "sharding": NamedSharding(MESH, P("i")),
    "replicated sharding": NamedSharding(MESH, P()),
    "single device": jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0]),
    "shape": jax.ShapeDtypeStruct((2,), jnp.float32),
    "other shape struct": jax.ShapeDtypeStruct((2,), jnp.int32),
    "lambda": lambda x: x + 1,
    "other lambda": lambda x: x + 2,
    "default": lambda x, y=1: x + y,
    "other default": lambda x, y=2: x + y,
    "keyword default": lambda x, *, y=1: x + y,
    "renamed parameter": lambda z, y=1: z + y,
    "partial": functools.partial(jnp.add, 1),
    "other partial": functools.partial(jnp.add, 2),
    "keyword partial": functools.partial(jnp.add, y=1),
    "method": Sim(1).step,
    "method of another object": Sim(2).step,
    "unbound method": Sim.step,
    "jitted": jax.jit(lambda x: x + 1),
    "jitted with static": jax.jit(lambda x: x + 1, static_argnums=0),
    "custom_vjp": clipped,
    "jax function": jax.nn.relu,
    "other jax function": jax.nn.gelu,
    "jitted jax function": jnp.sin,
    "jax ufunc": jnp.add,
    "numpy ufunc": np.add,
    "builtin": len,
    "bound builtin": [1].append,
    "native method": str.upper,
    "stdlib function": math.sin,
    "python function of stdlib": textwrap.dedent,
    "memo": functools.lru_cache(lambda x: x + 1),
    "equinox module": Model(jnp.ones(2)),
    "equinox module with another function": Model(jnp.ones(2), jnp.sin),
    "equinox class": Model,
    "optimizer": optax.adam(1e-3),
    "other rate": optax.adam(1e-2),
    "initializer": jax.nn.initializers.he_normal(),
    "treedef": jax.tree.structure((1, {"a": 2})),
    "precision": jax.lax.Precision.HIGHEST,
    "other precision": jax.lax.Precision.HIGH,
    "module": math,
}


def test_values_of_different_content_or_type_differ():
    prints = {name: fingerprint(value) for name, value in DISTINCT.items()}
    same = [(a, b) for a, b in itertools.combinations(prints, 2) if prints[a] == prints[b]]
    assert same == []


@pytest.mark.parametrize("name", DISTINCT)
def test_asking_again_gives_the_same(name):
    assert fingerprint(DISTINCT[name]) == fingerprint(DISTINCT[name])


ALIKE = {
    "dict order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "set order": ({"alpha", "beta", "gamma"}, {"gamma", "alpha", "beta"}),
    "nan objects": (math.nan, float("nan")),
    "byte order": (np.arange(3, dtype="<f4"), np.arange(3, dtype=">f4")),
    "memory order": (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
    "view": (np.arange(6)[::2], np.array([0, 2, 4])),
    "equal objects": (Sim([1, 2]), Sim([1, 2])),
    "equal modules": (Model(jnp.ones(2)), Model(jnp.ones(2))),
    "equal optimizers": (optax.adam(1e-3), optax.adam(1e-3)),
    "functions made alike": (define("f = lambda x: x * 3"), define("\n\n# moved\nf = lambda x: x * 3")),
    "docstring": (define("def f(x):\n  'One.'\n  return x"), define("def f(x):\n  'Other.'\n  return x")),
    "annotations": (define("def f(x: int): return x"), define("def f(x: str) -> str: return x")),
    "names of locals": (define("def f(x):\n  a = x\n  return a"), define("def f(x):\n  b = x\n  return b")),
    "name": (define("def f(x): return x"), define("def g(x): return x", "g")),
    "unused globals": (define("def f(x): return x", K=1), define("def f(x): return x", K=2)),
    "partials of one function": (functools.partial(jnp.add, 1), functools.partial(jnp.add, 1)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_does_not_matter(name):
    one, other = ALIKE[name]
    assert fingerprint(one) == fingerprint(other)


def closure(value):
    return lambda x: x * value


def helper(body):
    return define(f"def g(x): return {body}\ndef f(x): return g(x)")


UNLIKE = {
    "closure": (closure(2.0), closure(3.0)),
    "type in a closure": (closure(1), closure(True)),
    "function in a closure": (closure(jnp.sin), closure(jnp.cos)),
    "global": (define("def f(x): return x * K", K=1.0), define("def f(x): return x * K", K=2.0)),
    "global unbound": (define("def f(x): return x * K"), define("def f(x): return x * K", K=2.0)),
    "global that hides a builtin": (define("def f(x): return len(x)"), define("def f(x): return len(x)", len=max)),
    "helper": (helper("x + 1"), helper("x + 2")),
    "helper two steps away": (
        define("def h(x): return x\ndef g(x): return h(x)\ndef f(x): return g(x)"),
        define("def h(x): return -x\ndef g(x): return h(x)\ndef f(x): return g(x)"),
    ),
    "global of a nested function": (
        define("def f(x):\n  def g(y): return y * K\n  return g(x)", K=1),
        define("def f(x):\n  def g(y): return y * K\n  return g(x)", K=2),
    ),
    "nested function": (
        define("def f(x):\n  def g(y): return y + 1\n  return g(x)"),
        define("def f(x):\n  def g(y): return y + 2\n  return g(x)"),
    ),
    "constant tuple": (define("def f(x): return (1, 2)"), define("def f(x): return (1, 3)")),
    "type of a constant": (define("def f(x): return (1,)"), define("def f(x): return (1.0,)")),
    "sign of a constant": (define("def f(x): return 0.0"), define("def f(x): return -0.0")),
    "attribute read": (define("def f(x): return x.a"), define("def f(x): return x.b")),
    "text that looks like a docstring": (
        define("def f(x):\n  'a'\n  return 'a'"),
        define("def f(x):\n  'b'\n  return 'b'"),
    ),
    "memoized helper": (
        define("import functools\n@functools.cache\ndef g(x): return x\ndef f(x): return g(x)"),
        define("import functools\n@functools.cache\ndef g(x): return -x\ndef f(x): return g(x)"),
    ),
    "jitted helper": (
        define("import jax\n@jax.jit\ndef g(x): return x\ndef f(x): return g(x)"),
        define("import jax\n@jax.jit\ndef g(x): return -x\ndef f(x): return g(x)"),
    ),
    "rule of a custom_jvp": (
        define("import jax\nf = jax.custom_jvp(lambda x: x)\nf.defjvp(lambda p, t: (p[0], t[0]))"),
        define("import jax\nf = jax.custom_jvp(lambda x: x)\nf.defjvp(lambda p, t: (p[0], -t[0]))"),
    ),
    "method of a class": (
        define("class A:\n  def m(self): return 1\nf = A()"),
        define("class A:\n  def m(self): return 2\nf = A()"),
    ),
    "method of a base": (
        define("class B:\n  def m(self): return 1\nclass A(B): pass\nf = A()"),
        define("class B:\n  def m(self): return 2\nclass A(B): pass\nf = A()"),
    ),
    "property": (
        define("class A:\n  m = property(lambda self: 1)\nf = A()"),
        define("class A:\n  m = property(lambda self: 2)\nf = A()"),
    ),
    "class attribute": (define("class A: k = 1\nf = A()"), define("class A: k = 2\nf = A()")),
    "rebinding in jax": (define("import jax\ndef f(x): return jax.nn.relu(x)"), None),
}


@pytest.mark.parametrize("name", [name for name, pair in UNLIKE.items() if pair[1] is not None])
def test_what_matters(name):
    one, other = UNLIKE[name]
    assert fingerprint(one) != fingerprint(other)


def test_a_function_that_was_put_into_an_installed_module_counts(monkeypatch):
    fun = define("import jax\ndef f(x): return jax.nn.relu(x)")
    shipped = fingerprint(fun)
    monkeypatch.setattr(jax.nn, "relu", lambda x: x * 9)
    nine = fingerprint(fun)
    monkeypatch.setattr(jax.nn, "relu", lambda x: x * 10)
    assert len({shipped, nine, fingerprint(fun)}) == 3
    monkeypatch.undo()
    assert fingerprint(fun) == shipped


def test_attributes_of_own_modules_count(tmp_path, monkeypatch):
    (tmp_path / "own_constants.py").write_text("K = 1\nUNUSED = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    fun = define("import own_constants\ndef f(x): return x * own_constants.K")
    before = fingerprint(fun)
    module = sys.modules["own_constants"]
    module.UNUSED = 2
    assert fingerprint(fun) == before
    module.K = 2
    assert fingerprint(fun) != before
    del module.K
    assert fingerprint(fun) != before
    with pytest.raises(KeyingError, match="own_constants"):
        fingerprint(define("import own_constants\ndef f(x): return vars(own_constants)"))
    with pytest.raises(KeyingError, match="import"):
        fingerprint(define("def f(x):\n  import own_constants\n  return own_constants.K * x"))
    del sys.modules["own_constants"]


def test_components_are_seen_through():
    source = "import prejit\n@prejit.component\ndef g(x): return x * {}\ndef f(x): return g(x)"
    assert fingerprint(define(source.format(2))) == fingerprint(define(source.format(2)))
    assert fingerprint(define(source.format(2))) != fingerprint(define(source.format(3)))


def test_generic_and_abstract_classes_have_content():
    sources = (
        "import typing\nT = typing.TypeVar('T')\nclass f(typing.Generic[T]):\n  def m(self): return {}",
        "import typing\nclass f(typing.Protocol):\n  def m(self): return {}",
        "import abc\nclass f(abc.ABC):\n  @abc.abstractmethod\n  def m(self): return {}",
        "class B:\n  def m(self): return {}\nclass f(B):\n  def m(self): return super().m()",
    )
    for source in sources:
        one, same, other = (fingerprint(define(source.format(n), __name__="own")) for n in (1, 1, 2))
        assert one == same != other


def test_recursion_ends():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    fact = define("def f(n): return 1 if n < 2 else n * f(n - 1)")
    assert fingerprint(even) == fingerprint(even) != fingerprint(odd)
    assert fingerprint(fact) != fingerprint(define("def f(n): return 1 if n < 2 else n + f(n - 1)"))


def test_a_long_chain_of_helpers_does_not_nest():
    def chain(last, length=2000):
        fun = define(f"def f(x): return x + {last}")
        for _ in range(length):
            fun = closure_over(fun)
        return fun

    def closure_over(inner):
        return lambda x: inner(x)

    assert fingerprint(chain(1)) != fingerprint(chain(2))


def test_helpers_in_a_diamond_are_encoded_once():
    fun = define("def f(x): return x")
    for _ in range(200):
        fun = (lambda left, right: lambda x: left(right(x)))(fun, fun)
    fingerprint(fun)


def refused():
    lock = threading.Lock()
    cyclic = []
    cyclic.append(cyclic)
    deep = []
    for _ in range(10_000):
        deep = [deep]
    yield "lock", lock, "value"
    yield "file", sys.__stdout__, "value"
    yield "generator", (n for n in ()), "value"
    yield "iterator", itertools.count(), "value"
    yield "weak reference", weakref.ref(Sim(1)), "value"
    yield "cycle", cyclic, "value[0]"
    yield "depth", deep, "value[0][0]"
    yield "in a dict", {"a": [1, lock]}, "value['a'][1]"
    yield "in an object", Sim(lock), "value.dt"
    yield "in a dataclass", Point(1, lock), "value.y"
    yield "in a slot", Slotted(lock), "value.x"
    yield "in a closure", closure(lock), "value.__closure__['value']"
    yield "in a default", define("def f(x, y=L): return x", L=lock), "value.__defaults__[0]"
    yield "in a global", define("def f(x): return L", L=lock), "value.__globals__['L']"
    yield (
        "in a helper",
        define("def g(x): return L\ndef f(x): return g(x)", L=lock),
        "value.__globals__['g'].__globals__['L']",
    )
    yield "in a partial", functools.partial(jnp.add, lock), "value.args[0]"
    yield "masked array", np.ma.array([1.0], mask=[True]), "value"


@pytest.mark.parametrize(("value", "path"), [pytest.param(*rest, id=name) for name, *rest in refused()])
def test_what_has_no_identity_is_refused_with_its_place(value, path):
    with pytest.raises(KeyingError) as error:
        fingerprint(value)
    assert error.value.path.startswith(path)
    assert error.value.reason


def test_the_path_starts_with_what_the_caller_says():
    with pytest.raises(KeyingError) as error:
        fingerprint(Sim(closure(threading.Lock())), "static argument 'cfg'")
    assert error.value.path == "static argument 'cfg'.dt.__closure__['value']"
    assert "static argument 'cfg'.dt" in str(error.value)


def test_a_tracer_is_refused():
    def fun(x):
        with pytest.raises(KeyingError, match="tracer"):
            fingerprint([x])
        return x

    jax.make_jaxpr(fun)(1.0)


def test_treedefs_by_structure_and_static_data():
    def token(tree):
        return treedef_token(jax.tree.structure(tree))

    assert token((1, [2, {"a": None}])) == token((5, [6, {"a": None}]))
    trees = [
        1,
        (1,),
        [1],
        None,
        {"a": 1},
        {"b": 1},
        {1: 1},
        {"a": 1, "b": None},
        collections.OrderedDict(a=1),
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(int, a=1),
        collections.defaultdict(float, a=1),
        Pair(1, 2),
        (1, 2),
        ((1,), 2),
        (1, (2,)),
        Model(jnp.ones(2)),
        Model(jnp.ones(2), jnp.sin),
        eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)),
        eqx.nn.MLP(2, 2, 5, 1, key=jax.random.key(0)),
        jax.tree_util.Partial(jnp.sin, 1),
        jax.tree_util.Partial(jnp.cos, 1),
    ]
    tokens = [token(tree) for tree in trees]
    assert len(set(tokens)) == len(tokens)
    with pytest.raises(KeyingError, match="Model"):
        token(Model(jnp.ones(2), threading.Lock()))


def test_fingerprints_hold_in_a_fresh_process(run_python):
    # Python's own hashing differs there, and so do addresses and the order of sets.
    code = """
import collections, functools, jax, jax.numpy as jnp, numpy as np, optax
from prejit.key import fingerprint
NAMES = {"alpha", "beta", "gamma", "delta"}
class Sim:
    def __init__(self, dt): self.dt = dt
    def step(self, x): return {n: x for n in NAMES}, self.dt
def helper(x): return jnp.sin(x) * len(NAMES)
values = [NAMES, {n: n for n in NAMES}, Sim({1.5, 2.5}).step, helper, jax.jit(lambda x: helper(x)), optax.adam(1e-3),
          functools.partial(helper, {"a", "b"}), lambda x: x in {"a", "b", "c"}, jax.random.key(3), Sim]
print([fingerprint(value) for value in values])
"""
    outputs = {run_python(code, env={"PYTHONHASHSEED": seed}).stdout for seed in ("0", "1", "random")}
    moved = run_python("\n" * 30 + "import os\n" + code.replace("def helper", "\n# a comment\ndef helper")).stdout
    assert outputs == {moved}
