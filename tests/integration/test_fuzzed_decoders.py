"""No value ends, stalls or fills the process that decodes it; ``python -m tests.fuzzing`` looks for longer."""

import pytest

from batchledger.formats.decoding import blocks
from tests.fuzzing.campaign import Campaign
from tests.fuzzing.subjects import Subject, make_subjects

VALUES = 50
"""How many each subject gets: half a minute of one core."""


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    return make_subjects()


def test_no_value_at_a_border_ends_its_process_or_is_read_in_two_ways(subjects: list[Subject]) -> None:
    campaign = Campaign(subjects, seed=1)
    assert list(campaign.look(range(VALUES * len(subjects)))) == []
    rows_and_aside = zip(subjects, campaign.counts[:, :2].tolist(), strict=True)
    assert [subject.name for subject, counts in rows_and_aside if min(counts) == 0] == []


def test_negative_control_without_its_guard_a_far_exponent_ends_the_process(
    subjects: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "have_tiny", lambda doubles: False)
    decimals = [each for each in subjects if each.name.startswith("JSON") and "decimal" in each.name]
    found = {each.how for each in Campaign(decimals, seed=3).look(range(700))}
    assert "ends the process by SIGSEGV" in found
