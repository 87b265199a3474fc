"""A class that inherits from a role fills it: what it leaves out, it would inherit as a method that does nothing."""

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib import import_module

import pytest

import tests.fakes
from batchledger import channels, checks, formats, ledger, ports, sinks, source

ROLES = [each for each in vars(ports).values() if getattr(each, "_is_protocol", False)]


@pytest.fixture(scope="module", autouse=True)
def everything() -> None:
    for package in (channels, checks, formats, ledger, sinks, source, tests.fakes):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def find_classes(role: type) -> Iterator[type]:
    """Its adapters and fakes; what a single test makes of it is not theirs."""
    for each in role.__subclasses__():
        yield from find_classes(each)
        if not getattr(each, "_is_protocol", False) and each.__module__.startswith(("batchledger.", "tests.fakes.")):
            yield each


def is_optional(member: object) -> bool:
    """Whether the role itself has a body for it, which does for most."""
    if not inspect.isfunction(member):
        return False
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(member))).body
    assert isinstance(function, ast.FunctionDef)
    return len(function.body) > 1


def find_missing(role: type, class_: type) -> list[str]:
    members = {name: member for each in role.__mro__ for name, member in vars(each).items() if each in ROLES}
    return [
        name
        for name, member in members.items()
        if not name.startswith("_") and not is_optional(member) and inspect.getattr_static(class_, name, None) is member
    ]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
def test_every_class_of_a_role_has_all_that_the_role_asks_for(role: type) -> None:
    missing = {each.__name__: find_missing(role, each) for each in find_classes(role)}
    assert missing
    assert not {name: members for name, members in missing.items() if members}


def test_sink_is_one_that_commits_by_itself_if_its_capabilities_say_so() -> None:
    """The core asks the value, and takes the class on trust."""
    told = {each.__name__: not each.capabilities.shares_transaction for each in find_classes(ports.Sink)}
    assert set(told.values()) == {True, False}
    assert told == {each.__name__: issubclass(each, ports.CommittingSink) for each in find_classes(ports.Sink)}


def test_negative_control_method_that_a_class_leaves_out_is_found() -> None:
    class Half(ports.Stager):
        pass

    assert find_missing(ports.Stager, Half) == ["stage"]
