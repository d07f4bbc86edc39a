"""Build a treedef from its parts."""

from collections.abc import Sequence
from typing import Any

from jax._src import tree_util

_make: Any = tree_util.PyTreeDef.from_node_data_and_children


def make_tree(kind: Any, static: Any, children: Sequence[Any]) -> Any:
    """Return the treedef of one node.

    Args:
        kind: The node's class.
        static: Its static data, as `PyTreeDef.node_data` gives it.
        children: The treedefs of its children.
    """
    return _make(tree_util.default_registry, (kind, static), list(children))
