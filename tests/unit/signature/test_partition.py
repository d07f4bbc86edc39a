import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prejit.signature.describe import aval_text
from prejit.signature.partition import box, has_static_leaves


class Node:
    def __init__(self, *children):
        self.children = children


jax.tree_util.register_pytree_node(Node, lambda node: (node.children, None), lambda _, children: Node(*children))


def rebuilt(tree):
    leaves, treedef = jax.tree_util.tree_flatten(tree)
    return jax.tree_util.tree_unflatten(treedef, leaves)


def test_a_boxed_tree_has_only_arrays_and_gives_the_tree_back():
    node = Node(jnp.ones(2), "label", Node(len, 2.0), None, [1, b"x"])
    boxed = box({"a": node, "b": 1.0})
    leaves = jax.tree.leaves(boxed)
    assert not has_static_leaves(leaves)
    assert len(leaves) == 4
    back = rebuilt(boxed)["a"]
    assert isinstance(back, Node)
    assert back.children[1] == "label"
    assert back.children[2].children == (len, 2.0)
    assert back.children[4] == [1, b"x"]


def test_structure_is_equal_exactly_if_static_leaves_are_the_same():
    def structure(*children):
        return jax.tree.structure(box(Node(1.0, *children)))

    different = [
        ("a",),
        ("b",),
        (len,),
        (max,),
        ("a", "a"),
        ((), "a"),
        (None, "a"),
        (b"a",),
        (frozenset({0.0}),),
        (frozenset({-0.0}),),
    ]
    found = [structure(*children) for children in different]
    assert len(set(found)) == len(found)
    assert found == [structure(*children) for children in different]
    assert [hash(f) for f in found] == [hash(structure(*children)) for children in different]


def test_leaves_that_are_not_hashable_are_left_for_jax_to_refuse():
    for leaf in (set(), bytearray(b"a")):
        node = Node(1.0, leaf)
        assert box(node) is node


def test_plain_containers_are_left_for_jax_to_refuse():
    for tree in (["text"], {"a": len}, ("text", 1.0), "text", [None, "a"], {1: Node(1.0)}, Node(1.0, 2)):
        leaves = jax.tree.leaves(box(tree))
        assert leaves == jax.tree.leaves(tree)


def test_arrays_of_every_kind_are_no_static_leaves():
    leaves = [
        1,
        1.0,
        True,
        1j,
        np.ones(2),
        np.float32(1),
        jnp.ones(2),
        jax.random.key(0),
        jax.ShapeDtypeStruct((), "int8"),
    ]
    assert not has_static_leaves(leaves)
    assert has_static_leaves([1.0, "a"])
    jax.jit(lambda x: pytest.fail("a tracer is an array") if has_static_leaves([x]) else x)(1.0)


@pytest.mark.parametrize(
    ("aval", "text"),
    [
        (jax.ShapeDtypeStruct((), "float32"), "f32[]"),
        (jax.ShapeDtypeStruct((2, 0), "bfloat16"), "bf16[2,0]"),
        (jax.ShapeDtypeStruct((1,), "uint8"), "u8[1]"),
        (jax.ShapeDtypeStruct((), "bool"), "bool[]"),
        (jax.ShapeDtypeStruct((), "complex64"), "c64[]"),
        (jax.ShapeDtypeStruct((), "int32", weak_type=True), "i32[]~"),
        (jax.ShapeDtypeStruct((3,), jax.random.key(0).dtype), "key<fry>[3]"),
        ("no aval", "str"),
    ],
)
def test_types_as_text(aval, text):
    assert aval_text(aval) == text
