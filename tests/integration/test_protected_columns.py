"""``source.protect``: a value is in no database and in no file but Kafka's own, whatever becomes of its record.

One pipeline meets all that may happen to a record: published, malformed, refused by a check, met by a transform that
fails and quotes what it sees. Afterwards the databases and all files of the stack are searched. The negative control is
the same pipeline without ``protect``.
"""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchledger.lifecycle import plans, run_batch
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.wiring import verify_pipeline
from tests.conftest import TestServices, as_superuser
from tests.integration.test_cli import ask, batchledger
from tests.key_secret import use_key_secret
from tests.leaks import find_leaks
from tests.support import TestPipeline, Workplace

HASHED_WITH = "a secret of the tests, long enough"
SCHEMA = "message_id string, email string, card string, note string, amount double"
PROTECT = {"email": "hash", "card": "mask", "note": "drop"}
NOT_NULL = {"type": "expect_column_values_to_not_be_null", "column": "amount", "on_failure": "quarantine"}
CARD = "4111222233334444"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The services' own is in files of theirs; this one is in none that is searched."""
    use_key_secret(monkeypatch, tmp_path, HASHED_WITH)


def protected(workplace: Workplace, protect: dict[str, str] = PROTECT, **more: Any) -> TestPipeline:
    source = {"schema": SCHEMA, "unknown_fields": "keep", "protect": protect}
    return workplace.create(partitions=1, source=source, quarantine={"max_share": 1}, **more)


def rewrite(pipeline: TestPipeline, **changes: Any) -> None:
    content = yaml.safe_load(pipeline.path.read_text())
    pipeline.path.write_text(yaml.safe_dump(content | changes))


def record(email: str, amount: object = 1.0) -> bytes:
    fields = {"message_id": "m", "email": email, "card": CARD, "note": email, "amount": amount}
    return json.dumps(fields).encode()


def run(pipeline: TestPipeline, name: str) -> None:
    run_batch.run_once(pipeline.platform(), name)


def live(pipeline: TestPipeline, canary: str) -> None:
    """Publish a record, set one aside that does not decode, and one that a check refuses; then let a transform fail."""
    pipeline.send_raw(
        [(0, record(canary)), (0, record(canary, canary)), (0, record(canary)[:-1]), (0, record(canary, None))],
        key=canary.encode(),
        headers=[("who", canary.encode())],
    )
    run(pipeline, "first")
    rewrite(pipeline, transform="tests.transforms:quote_an_email")
    pipeline.send_raw([(0, record(canary))])
    with pytest.raises(BatchledgerError, match="ValueError was raised in"):
        run(pipeline, "second")


def test_protected_value_is_in_no_database_and_no_file(workplace: Workplace, services: TestServices) -> None:
    canary, clear = "anna-canary-7f3a@example.org", "otto-canary-91bc@example.org"
    pipeline, control = protected(workplace, checks=[NOT_NULL]), protected(workplace, {}, checks=[NOT_NULL])
    live(pipeline, canary)
    live(control, clear)
    hashed = hmac.new(HASHED_WITH.encode(), canary.encode(), hashlib.sha256).hexdigest()
    assert pipeline.query("select message_id, email, card, amount from {target}") == [("m", hashed, "****4444", 1.0)]
    assert "note" not in pipeline.read_columns()
    assert verify_pipeline(pipeline.config).holds
    words = {"canary": canary, "clear": clear, "secret": HASHED_WITH}
    leaks = find_leaks(words, services.home.local, as_superuser(workplace.dsn))
    # Kafka has the records; the broker is the pipeline's source, not its target.
    found = {place: held for place, held in leaks.items() if not place.startswith("kafka/")}
    assert {held for each in found.values() for held in each} == {"clear"}, found
    tables = {place.partition(".")[2] for place in found}
    assert {f"public.{control.name}_target", "batchledger.quarantine", "batchledger.attempt"} <= tables


def test_record_that_was_set_aside_without_payload_is_read_from_kafka_again(workplace: Workplace) -> None:
    pipeline = protected(workplace)
    pipeline.send_raw([(0, record("anna@x.org")), (0, record("otto@x.org", "not a number"))])
    run(pipeline, "first")
    kept = 'select "offset", key, value, headers, payload_kept, error from batchledger.quarantine where pipeline = %s'
    error = "amount (double) cannot hold a string"
    assert pipeline.query(kept, pipeline.name) == [(1, None, None, None, False, error)]
    assert "(not kept" in batchledger("quarantine", "list", pipeline.name, "--show-payload").stdout
    refused = batchledger("quarantine", "replay", pipeline.name, "--all", "--reason", "r")
    again = f'batchledger replay {pipeline.name} --range "{pipeline.name}[0] 1..2"'
    assert (refused.returncode != 0, again in " ".join(refused.stderr.split())) == (True, True), refused.stderr
    source = yaml.safe_load(pipeline.path.read_text())["source"]
    rewrite(pipeline, source=source | {"schema": SCHEMA.removesuffix(", amount double")})
    ask("replay", pipeline.name, "--range", f"{pipeline.name}[0] 1..2", "--reason", "the schema is mended")
    assert pipeline.query("select amount, _rest from {target} order by _offset") == [
        (1.0, None),
        (None, {"amount": "not a number"}),
    ]
    assert pipeline.query(kept, pipeline.name) == []


def test_erasure_by_a_hashed_column_takes_the_value_itself(
    workplace: Workplace, services: TestServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Erased keys are remembered under the secret that the ledger has taken over.
    ours = services.credentials.key_secret
    use_key_secret(monkeypatch, tmp_path, ours)
    pipeline = protected(workplace)
    pipeline.send_raw([(0, record("anna@x.org")), (0, record("otto@x.org"))])
    run(pipeline, "first")

    def erase(key: str, reason: str = "ticket 812") -> str:
        done = batchledger("erase", pipeline.name, "--key", key, "--reason", reason)
        return " ".join(f"{done.stdout} {done.stderr}".split())

    assert "The reason names a value of the key" in erase("email=anna@x.org", "for anna@x.org")
    assert "card is masked" in erase(f"card={CARD}")
    assert "Recorded with your name" in erase("email=anna@x.org")
    left = hmac.new(ours.encode(), b"otto@x.org", hashlib.sha256).hexdigest()
    assert pipeline.query("select email from {target}") == [(left,)]
    assert verify_pipeline(pipeline.config).holds


def test_another_secret_is_refused_until_the_table_is_emptied(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = protected(workplace)
    pipeline.send_raw([(0, record("anna@x.org"))])
    run(pipeline, "first")
    ((before,),) = pipeline.query("select email from {target}")
    use_key_secret(monkeypatch, tmp_path, HASHED_WITH.upper())
    pipeline.send_raw([(0, record("anna@x.org"))])
    with pytest.raises(ConfigurationError, match="another secret"):
        run(pipeline, "second")
    assert pipeline.query("select email from {target}") == [(before,)]
    ask("rewind", pipeline.name, "--to", "earliest", "--truncate", "--reason", "a new secret")
    run(pipeline, "third")
    ((first,), (second,)) = pipeline.query("select email from {target}")
    assert (first == second, first == before) == (True, False)


def test_protect_that_is_deployed_before_the_publication_stages_the_batch_again(workplace: Workplace) -> None:
    pipeline = protected(workplace, {})
    pipeline.send_raw([(0, record("anna@x.org"))])
    batch = plans.plan(pipeline.platform(), "run")
    assert batch is not None
    run_batch.stage(pipeline.platform(), batch.batch_id, "run")
    run_batch.audit(pipeline.platform(), batch.batch_id, "run")
    source = yaml.safe_load(pipeline.path.read_text())["source"]
    rewrite(pipeline, source=source | {"protect": PROTECT})
    published = run_batch.publish(pipeline.platform(), batch.batch_id, "run", run_batch.stage)
    assert (published.ranges, published.attempt) == (batch.ranges, 2)
    hashed = hmac.new(HASHED_WITH.encode(), b"anna@x.org", hashlib.sha256).hexdigest()
    assert pipeline.query("select email, card from {target}") == [(hashed, "****4444")]
    assert "note" not in pipeline.read_columns()
    assert verify_pipeline(pipeline.config).holds
