"""The form of the Trigger button: what JSON schema refuses before a run exists, and what it lets the first task see."""

from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import ParamValidationError

from batchledger.interfaces.airflow.triggers import make_form
from batchledger.interfaces.trigger_form import Action, Field
from batchledger.model.offsets import OffsetRange


def validate(**fields: Any) -> dict[str, Any]:
    """As the API does with the configuration of a run before it creates the run."""
    form = ParamsDict(make_form())
    form.update(fields)
    return form.validate()


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "everything"},
        {"action": None},
        {"max_records": 0},
        {"max_records": "5"},
        {"max_records": 1.5},
        {"window_since": "yesterday"},
        {"window_since": "2026-11-21"},
        {"window_until": "2026-11-21T00:00:00"},
        {"ranges": "orders[0] 0..5"},
        {"ranges": ["orders[0] 0-5"]},
        {"ranges": ["orders[0] 0..5, orders[1] 0..5"]},
        {"ranges": [5]},
        {"batch_id": 0},
        {"batch_id": "17"},
        {"allow_expired": "yes"},
        {"dry_run": "yes"},
        {"reason": 5},
    ],
    ids=str,
)
def test_form_refuses_wrong_input_by_the_name_of_its_field(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(ParamValidationError, match=f"Invalid input for param {name}: "):
        validate(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        *({"action": action.value} for action in Action),
        # What the pickers and text areas of Airflow's page send.
        {"window_since": "2026-11-21T09:30:00.000Z"},
        {"window_until": "2026-11-21T10:30:00+01:00"},
        {"ranges": ["orders[0] 0..5", "my.topic_1-a[12] 3..4", ""]},
        {"ranges": None},
        {"max_records": None},
        {"max_records": 1},
        {"allow_expired": True},
        {"dry_run": True},
        {"reason": ""},
    ],
    ids=str,
)
def test_form_takes_what_the_page_sends(fields: dict[str, Any]) -> None:
    assert validate(**fields).items() >= fields.items()


@pytest.mark.parametrize("line", ["orders[3] 10..25", "my.topic_1-a[12] 3..4"])
def test_line_that_the_form_takes_is_a_range(line: str) -> None:
    assert str(OffsetRange.parse(validate(ranges=[line])["ranges"][0])) == line


def test_every_field_has_a_title_and_a_description_and_every_action_a_label() -> None:
    assert list(make_form()) == list(Field)
    for param in make_form().values():
        assert param.schema["title"]
        assert param.description or param.schema["description_md"]
    assert all(each.label for each in Action)


def test_form_offers_to_publish_records_from_quarantine_again_and_says_what_its_ranges_mean() -> None:
    form = make_form()
    schema = form[Field.ACTION].schema
    assert "replay_quarantine" in schema["enum"]
    assert "quarantine" in schema["values_display"]["replay_quarantine"]
    assert "quarantine" in form[Field.RANGES].schema["section"]
    assert "From quarantine" in form[Field.RANGES].schema["description_md"]


def test_two_forms_share_no_value() -> None:
    """Airflow keeps the values of a run in the params."""
    first, second = ParamsDict(make_form()), ParamsDict(make_form())
    first.update({"max_records": 5})
    assert second.validate()["max_records"] is None
