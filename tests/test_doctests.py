"""Every doctest of the package."""

import doctest
import importlib
import pkgutil

import pytest

import gpuscale

MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(gpuscale.__path__, "gpuscale.")
    if "__main__" not in m.name
)


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
