"""What was shown can be carried out only as it was shown, by whom it was shown to, and for a while."""

import base64
import json
from dataclasses import asdict, replace

import pytest
from itsdangerous import TimestampSigner, URLSafeTimedSerializer

from batchledger.interfaces.page.approval import VALID_SECONDS, Approval, digest, read, sign
from batchledger.model.batch import DecisionKind
from batchledger.model.errors import DecisionRefusedError

SECRET = "a secret of Airflow"  # noqa: S105
SHOWN = Approval(
    user_id="ana",
    pipeline="orders",
    dag_id="nightly",
    kind=DecisionKind.ACCEPT_LOSS,
    fields={"ranges": "orders[0] 3..5\norders[1] 0..2", "reason": "ü < 5"},
    effect=digest(["anything"]),
)
NOON = 1_800_000_000


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: seconds)


def assert_refused(text: str, told: str, *, secret: str = SECRET, user: str = "ana", pipeline: str = "orders") -> None:
    with pytest.raises(DecisionRefusedError, match=told):
        read(text, secret, user, pipeline)


def test_approval_reads_back_as_it_was_signed() -> None:
    found = read(sign(SHOWN, SECRET), SECRET, "ana", "orders")
    assert found == SHOWN
    assert found.kind is DecisionKind.ACCEPT_LOSS


@pytest.mark.parametrize("kind", DecisionKind)
def test_every_kind_of_decision_reads_back(kind: DecisionKind) -> None:
    assert read(sign(replace(SHOWN, kind=kind), SECRET), SECRET, "ana", "orders").kind is kind


@pytest.mark.parametrize("other", [{"user": "ben"}, {"pipeline": "payments"}], ids=["user", "pipeline"])
def test_what_was_shown_to_somebody_else_or_of_another_pipeline_is_refused(other: dict[str, str]) -> None:
    assert_refused(sign(SHOWN, SECRET), "shown to another person", **other)


def test_approval_of_another_secret_is_refused() -> None:
    assert_refused(sign(SHOWN, "somebody's own secret"), "too long ago, or never")


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "\x00", "ü.ü.ü", "x" * 100_000])
def test_text_that_nobody_has_signed_is_refused(text: str) -> None:
    assert_refused(text, "too long ago, or never")


def test_approval_of_which_any_character_was_changed_is_refused() -> None:
    text = sign(SHOWN, SECRET)
    # Some bits of a signature's last character mean nothing.
    for index in range(len(text) - 1):
        changed = text[:index] + ("A" if text[index] != "A" else "B") + text[index + 1 :]
        assert_refused(changed, "too long ago, or never")


def test_content_with_the_signature_of_another_one_is_refused() -> None:
    signed = sign(SHOWN, SECRET)
    content = {**asdict(SHOWN), "fields": {"ranges": "orders[0] 3..500", "reason": "ü < 5"}}
    forged = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    assert_refused(".".join([forged, *signed.rsplit(".", 2)[1:]]), "too long ago, or never")


def test_what_airflow_has_signed_for_something_else_is_refused() -> None:
    """The secret is Airflow's own, with which other things are signed, too."""
    text = URLSafeTimedSerializer(SECRET).dumps(asdict(SHOWN))
    assert isinstance(text, str)
    assert_refused(text, "too long ago, or never")


def test_approval_is_valid_for_a_while_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, NOON)
    text = sign(SHOWN, SECRET)
    set_clock(monkeypatch, NOON + VALID_SECONDS)
    assert read(text, SECRET, "ana", "orders") == SHOWN
    set_clock(monkeypatch, NOON + VALID_SECONDS + 1)
    assert_refused(text, "too long ago, or never")


def test_digest_differs_as_soon_as_the_effect_does() -> None:
    effects = [
        None,
        [True, {"next_offset": {"orders[0]": 3}}, {"next_offset": {"orders[0]": 5}}],
        [False, {"next_offset": {"orders[0]": 3}}, {"next_offset": {"orders[0]": 5}}],
        [True, {"next_offset": {"orders[0]": 3}}, {"next_offset": {"orders[0]": 6}}],
        [True, {"next_offset": {"orders[1]": 3}}, {"next_offset": {"orders[1]": 5}}],
        "manual__1",
    ]
    assert len({digest(each) for each in effects}) == len(effects)


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2, {"c": 3, "d": 4}]}) == digest({"b": [2, {"d": 4, "c": 3}], "a": 1})
