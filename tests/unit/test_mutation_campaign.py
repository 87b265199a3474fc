"""The campaign of mutants itself: it has to find what a test does not notice."""

from pathlib import Path

import pytest

from tests.mutation import campaign
from tests.mutation.campaign import Change, Verdict, judge, read_equivalent

CORE = """
def fits(taken: int, limit: int) -> bool:
    return taken <= limit
"""
BOUND_IS_TESTED = """
from small.core import fits

def test_limit_itself_fits() -> None:
    assert fits(5, 5)
    assert not fits(6, 5)
"""
SURVIVOR = Change("small.core.x_fits", "return taken <= limit", "return taken < limit")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one function, whose test takes its bound seriously."""
    root = tmp_path / "project"
    for name, text in (("include/small/__init__.py", ""), ("include/small/core.py", CORE)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tests").mkdir()
    (root / "tests/test_core.py").write_text(BOUND_IS_TESTED)
    settings = '[tool.mutmut]\nsource_paths = ["src"]\nuse_git_change_detection = false\n[tool.pytest.ini_options]\n'
    (root / "pyproject.toml").write_text(settings)
    return root


def run(project: Path) -> tuple[dict[str, str], list[Change]]:
    workspace = project.parent / "workspace"
    campaign.prepare(project, workspace)
    statuses, survivors = campaign.run(workspace, [], workers=1)
    assert len(statuses) == 1, statuses
    return statuses, survivors


def test_change_that_a_test_notices_does_not_survive_and_may_not_be_listed(project: Path) -> None:
    found = run(project)
    assert judge(*found, []).is_good
    assert judge(*found, [SURVIVOR]).outdated == (SURVIVOR,)


def test_negative_control_without_the_assertion_of_its_bound_the_change_survives(project: Path) -> None:
    weaker = BOUND_IS_TESTED.replace("assert fits(5, 5)", "assert fits(4, 5)")
    (project / "tests/test_core.py").write_text(weaker)
    found = run(project)
    assert judge(*found, []).unexplained == (SURVIVOR,)
    assert judge(*found, [SURVIVOR]).is_good


def test_function_that_no_test_calls_counts_as_a_survivor_and_one_that_was_left_out_does_not() -> None:
    statuses = {"small.core.x_fits__mutmut_1": "no tests", "small.core.x_other__mutmut_1": "not checked"}
    other = Change("small.core.x_other", "a", "b")
    assert judge(statuses, [SURVIVOR], [other]) == Verdict((SURVIVOR,), (), ())


def test_entry_of_the_list_without_a_reason_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "equivalent.toml"
    listed.write_text('[[equivalent]]\nfunction = "f"\nwas = "a"\nbecomes = "b"\nreason = " "\n')
    with pytest.raises(ValueError, match="no reason is given for f"):
        read_equivalent(listed)


def test_every_listed_change_has_a_reason_and_is_listed_once() -> None:
    listed = read_equivalent(campaign.EQUIVALENT)
    assert len(listed) == len(set(listed))
