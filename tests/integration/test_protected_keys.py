"""Columns that are hashed, on a ledger that remembers keys and erasures under the same secret."""

import hashlib
import hmac
import json
from typing import Any

import psycopg
import pytest
import yaml

from batchledger.lifecycle import run_batch
from batchledger.model.errors import ConfigurationError
from batchledger.wiring import verify_pipeline
from tests.conftest import SERVICES
from tests.integration.test_cli import ask
from tests.support import TestPipeline, Workplace

SCHEMA = "message_id string, email string"
HASHED = {"email": "hash"}


def hash_of(email: str) -> str:
    return hmac.new(SERVICES.credentials.key_secret.encode(), email.encode(), hashlib.sha256).hexdigest()


def rewrite(pipeline: TestPipeline, protect: dict[str, str], **changes: Any) -> None:
    content = yaml.safe_load(pipeline.path.read_text())
    content["source"]["protect"] = protect
    pipeline.path.write_text(yaml.safe_dump(content | changes))


def publish(pipeline: TestPipeline, run: str, *emails: str) -> None:
    pipeline.send_raw([(0, json.dumps({"message_id": "m", "email": each}).encode()) for each in emails])
    run_batch.run_once(pipeline.platform(), run)


def emails_of(pipeline: TestPipeline) -> list[str]:
    return sorted(email for (email,) in pipeline.query("select email from {target}"))


@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"])
def test_key_that_is_a_hashed_column_stays_known_and_is_not_forgotten_without_the_hash(
    workplace: Workplace, transform: str | None
) -> None:
    rules = {"dedupe": {"key": ["email"], "remember": "7d"}, "transform": transform}
    pipeline = workplace.create(partitions=1, source={"schema": SCHEMA, "protect": HASHED}, **rules)
    publish(pipeline, "first", "anna@x.org", "otto@x.org")
    publish(pipeline, "second", "anna@x.org", "eva@x.org")
    expected = sorted(map(hash_of, ("anna@x.org", "otto@x.org", "eva@x.org")))
    assert emails_of(pipeline) == expected
    assert verify_pipeline(pipeline.config).holds
    rewrite(pipeline, {})
    with pytest.raises(ConfigurationError, match="email as text, hashed, now as text"):
        publish(pipeline, "third", "anna@x.org")
    rewrite(pipeline, HASHED)
    publish(pipeline, "fourth")
    assert emails_of(pipeline) == expected
    assert verify_pipeline(pipeline.config).holds


def test_erased_rows_stay_away_once_their_column_is_hashed(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": SCHEMA})
    publish(pipeline, "first", "anna@x.org", "otto@x.org")
    key = ("--key", "email=anna@x.org", "--reason", "ticket 812")
    ask("erase", pipeline.name, *key)
    rewrite(pipeline, HASHED)
    ask("rewind", pipeline.name, "--to", "earliest", "--truncate", "--reason", "hashes from now on")
    with pytest.raises(ConfigurationError, match="may bring rows back that were erased by email"):
        publish(pipeline, "second")
    assert emails_of(pipeline) == []
    ((batch_id,),) = pipeline.query("select max(batch_id) from batchledger.batch where pipeline = %s", pipeline.name)
    ask("pause", pipeline.name, "--reason", "ticket 812")
    ask("discard", str(batch_id), "--reason", "ticket 812")
    ask("erase", pipeline.name, *key)
    with psycopg.connect(workplace.dsn) as connection:
        forget = "delete from batchledger.erased_key where pipeline = %s and columns = '{email}' and form = ''"
        assert connection.execute(forget, [pipeline.name]).rowcount == 1
    ask("resume", pipeline.name, "--reason", "ticket 812")
    publish(pipeline, "third", "anna@x.org")
    assert emails_of(pipeline) == sorted([hash_of("otto@x.org"), hash_of("anna@x.org")])
    verification = verify_pipeline(pipeline.config)
    assert (verification.findings, verification.rows_erased) == ((), 1)
