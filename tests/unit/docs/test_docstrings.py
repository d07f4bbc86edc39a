"""Every example in a docstring runs and gives what stands after it; every public name has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import prejit
from prejit.stage.reporting import report_store

PUBLIC = {name: getattr(prejit, name) for name in prejit.__all__} | {
    f"{kind.__name__}.{name}": method
    for kind in (prejit.Component, prejit.Program)
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
}
MODULES = [
    found.name for found in pkgutil.walk_packages(prejit.__path__, "prejit.") if not found.name.endswith("__main__")
]


@pytest.fixture(autouse=True)
def _stores_report_again():
    yield
    report_store()  # an example takes the hook away


@pytest.mark.parametrize("module", ["prejit", *MODULES])
def test_examples_give_what_they_say(module, store_dir):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0, "the examples are printed above"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    assert "    >>> " in inspect.getdoc(PUBLIC[name])
