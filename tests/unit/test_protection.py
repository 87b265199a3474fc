"""``source.protect``: rows have hashes, masks, or no column at all, whichever way their records were decoded.

The statement of what they have is written here by ``hashlib`` and slices. It shares nothing with the product.
"""

import hashlib
import hmac
import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.formats.decoding.decoder import Protector, RecordDecoder
from batchledger.formats.decoding.registered import RegisteredDecoder
from batchledger.formats.records import write_headers
from batchledger.lifecycle import decisions, plans
from batchledger.model.batch import Decision, QuarantinedRecord
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import BatchledgerError, ConfigurationError, ReplayRefusedError
from batchledger.model.hashing import fingerprint_of, make_hash
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import REST, parse_columns
from batchledger.model.records.outer import KeyFormat, OuterColumns, parse_headers, parse_key
from batchledger.model.records.protection import ColumnProtection, describe_form
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.writer_schemas import Framing, SchemaType, WriterSchema
from batchledger.planning.replay import Replay, require_payloads
from batchledger.reading import protect_key
from batchledger.wiring import build_platform
from tests.avro import encode, frame, record_schema
from tests.fakes.world import ORDERS_0, PIPELINE, World
from tests.key_secret import use_key_secret
from tests.protobuf import write_message
from tests.unit.test_config import UPSERT, changed, write
from tests.unit.test_meaning import records_of
from tests.unit.test_unknown_fields import errors_of, rows_of

SECRET = b"a secret of the tests, long enough"
ALL = {"email": ColumnProtection.HASH, "card": ColumnProtection.MASK, "note": ColumnProtection.DROP}
SCHEMA = "id bigint, customer.email as email string, card string, note string"
COLUMNS = parse_columns(SCHEMA)
PROTO = """syntax = "proto3";
message Customer { optional string email = 1; string name = 2; }
message Order { int64 id = 1; Customer customer = 2; optional string card = 3; optional string note = 4; }
"""
AVRO = record_schema(
    id="long",
    customer={
        "type": "record",
        "name": "customer",
        "fields": [{"name": "email", "type": ["null", "string"]}, {"name": "name", "type": "string"}],
    },
    card=["null", "string"],
    note=["null", "string"],
)

ORDER = {"id": 1, "customer": {"email": "anna@x.org", "name": "n"}, "card": "4111111111111111", "note": "anna"}


def state_hash(text: str | None) -> str | None:
    return None if text is None else hmac.new(SECRET, text.encode("utf-8"), hashlib.sha256).hexdigest()


def state_mask(text: str | None) -> str | None:
    return None if text is None else "****" + text[-4:] if len(text) > 8 else "****"


def protecting(**more: Any) -> RecordDecoder:
    return RecordDecoder(COLUMNS, protector=Protector(ALL, SECRET), **more)


def columns_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row has of its record."""
    return {name: value for name, value in row.items() if not name.startswith("_") or name == "_rest"}


TEXT = st.none() | st.text(max_size=12).filter(lambda text: "\0" not in text)


@given(st.lists(st.tuples(TEXT, TEXT, st.booleans()), min_size=1, max_size=80))
def test_both_ways_to_decode_give_what_is_stated(cases: list[tuple[str | None, str | None, bool]]) -> None:
    """A byte order mark makes a record doubtful, so that it is read by itself."""
    values = [
        (b"\xef\xbb\xbf" if is_doubtful else b"")
        + json.dumps({"id": 1, "customer": {"email": email}, "card": card, "note": email}).encode()
        for email, card, is_doubtful in cases
    ]
    decoded = protecting().decode(records_of(*values))
    assert {place: columns_of(row) for place, row in rows_of(decoded).items()} == {
        place: {"id": 1, "email": state_hash(email), "card": state_mask(card)}
        for place, (email, card, _) in enumerate(cases)
    }


@given(st.binary(max_size=140), st.text())
@example(b"Jefe", "what do ya want for nothing?")
@example(b"x" * 64, "")
@example(b"x" * 65, "")
def test_hash_is_hmac_for_secrets_of_every_length(secret: bytes, text: str) -> None:
    assert make_hash(secret)(text) == hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def of_json() -> tuple[RegisteredDecoder | None, bytes]:
    return None, json.dumps(ORDER).encode()


def of_avro() -> tuple[RegisteredDecoder | None, bytes]:
    find = {1: WriterSchema(1, SchemaType.AVRO, json.dumps(AVRO))}.__getitem__
    return RegisteredDecoder(SchemaType.AVRO, Framing.CONFLUENT, (*COLUMNS, REST), find), frame(1, encode(AVRO, ORDER))


def of_protobuf() -> tuple[RegisteredDecoder | None, bytes]:
    find = {1: WriterSchema(1, SchemaType.PROTOBUF, PROTO)}.__getitem__
    registered = RegisteredDecoder(SchemaType.PROTOBUF, Framing.CONFLUENT, (*COLUMNS, REST), find)
    return registered, frame(1, b"\2\2" + write_message(PROTO, (1,), **ORDER))


@pytest.mark.parametrize("of", [of_json, of_avro, of_protobuf])
@pytest.mark.parametrize("is_protected", [True, False])
def test_no_format_lets_a_value_through_not_even_into_what_is_kept(of: Any, is_protected: bool) -> None:
    registered, value = of()
    keeping = {"unknown_fields": UnknownFieldPolicy.KEEP, "registered": registered}
    decoder = protecting(**keeping) if is_protected else RecordDecoder(COLUMNS, **keeping)
    rows = rows_of(decoder.decode(records_of(value)))
    rest = '{"customer":{"name":"n"}}'
    if is_protected:
        email, card = state_hash("anna@x.org"), state_mask("4111111111111111")
        assert columns_of(rows[0]) == {"id": 1, "email": email, "card": card, "_rest": rest}
        assert [text for text in ("anna", "4111111") if text in str(rows)] == []
    else:
        assert "anna@x.org" in str(rows)


def test_columns_of_key_and_headers_and_keys_of_tombstones_are_protected() -> None:
    headers = parse_headers({"card": "header card string", "note": "header n string"})
    outer = OuterColumns(parse_key(KeyFormat.STRING, "email string"), headers)
    columns, protector = parse_columns("id bigint"), Protector(ALL, SECRET)
    decoder = RecordDecoder(columns, TombstonePolicy.DELETE, ("email",), outer=outer, protector=protector)
    written = write_headers([("card", b"4111111111111111"), ("n", b"anna")])
    records = records_of(b'{"id": 1}', None)
    for name, content in (("key", b"anna@x.org"), ("headers", written)):
        place = records.schema.get_field_index(name)
        records = records.set_column(place, records.schema.field(place), pa.array([content] * 2))
    found = [columns_of(row) for row in rows_of(decoder.decode(records)).values()]
    protected = {"email": state_hash("anna@x.org"), "card": "****1111"}
    assert found == [{"id": 1, **protected}, {"id": None, **protected}]


def test_secret_is_in_no_text_of_the_decoder_and_goes_with_it_to_the_workers() -> None:
    decoder = protecting()
    assert SECRET.decode() not in repr(decoder)
    assert pickle.loads(pickle.dumps(decoder)).protector.secret == SECRET  # noqa: S301 -- Our own bytes.


def test_record_that_does_not_fit_a_protected_column_is_refused_without_its_value() -> None:
    decoded = RecordDecoder(parse_columns("id int, email string"), protector=Protector(ALL, SECRET)).decode(
        records_of(b'{"id": "anna@x.org", "email": "anna@x.org"}')
    )
    assert errors_of(decoded) == {0: "id (int) cannot hold a string"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source__protect": {"id": "encrypt"}}, "source.protect.id: 'encrypt' is not allowed; allowed: "),
        (
            {"source__protect": {"mail": "drop"}},
            "source: protect: 'mail' is no column of schema, key or headers; declare it, also to drop it",
        ),
        (
            {"source__protect": {"amount": "mask"}},
            "source: protect: 'amount' is a decimal(10,2), and mask is for texts; declare it as string",
        ),
        (
            {"source__schema": "x jsonb, x.email as email string", "source__protect": {"email": "hash"}},
            "source: protect: column 'x' holds x.email in clear text, too; protect it as well, or declare other fields",
        ),
        (
            {"source__headers": dict.fromkeys("ab", "header mail string"), "source__protect": {"a": "hash"}},
            "source: protect: column 'b' holds mail in clear text, too; ",
        ),
        (
            {"source__protect": {"id": "mask"}, **UPSERT},
            "sink.key: 'id' is masked: different values look the same; write hash in protect",
        ),
        (
            {"source__protect": {"id": "mask"}, "transform": "a:b", "dedupe__key": ["id"], "dedupe__remember": "1d"},
            "dedupe.key: 'id' is masked",
        ),
        (
            {
                "source__schema": "id string, n int",
                "source__protect": {"n": "drop"},
                "sequence__key": ["id"],
                "sequence__number": "n",
            },
            "sequence.number: 'n' is dropped by source.protect",
        ),
        (
            {"source__protect": {"id": "drop"}, **UPSERT},
            "sink.key: 'id' is dropped by source.protect",
        ),
    ],
)
def test_file_that_cannot_protect_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_pipeline_file(write(tmp_path, changed(**changes)))
    assert told in str(refused.value)


def test_field_may_be_dropped_whole_while_another_within_stays(tmp_path: Path) -> None:
    schema = "id string, customer string, customer.id as customer_id bigint"
    content = changed(source__schema=schema, source__protect={"customer": "drop"})
    source = read_pipeline_file(write(tmp_path, content)).source
    assert [each.name for each in source.columns] == ["id", "customer_id"]


def protected_pipeline() -> PipelineConfig:
    source = {"topics": ["orders"], "schema": "id string", "protect": {"id": "hash"}}
    content = {"name": "orders", "source": source, "sink": {"table": "orders"}}
    return PipelineConfig.model_validate(content, context={"folder": Path("/etc/pipelines")})


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (None, "/etc/pipelines/orders.yaml: source.protect: Airflow knows no connection 'batchledger_keys'."),
        ("", "Connection 'batchledger_keys' has no password. Nothing was read."),
        ("x" * 31, "Connection 'batchledger_keys' has a short password. Nothing was read."),
    ],
)
def test_pipeline_without_a_secret_is_refused_before_its_warehouse_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secret: str | None, told: str
) -> None:
    use_key_secret(monkeypatch, tmp_path, secret)
    platform = build_platform(protected_pipeline())
    with pytest.raises(BatchledgerError) as refused:
        platform.require_secret()
    assert str(refused.value).startswith(told)


def test_without_a_secret_no_batch_is_opened_and_decisions_are_recorded(world: World) -> None:
    def refuse() -> None:
        raise ConfigurationError("no secret")

    platform, by = replace(world.process(), require_secret=refuse), Decision("someone", "the secret is lost")
    replayed = Replay((OffsetRange(ORDERS_0, 0, 1),))
    for plan in (partial(plans.plan, platform, "r"), partial(plans.plan_replay, platform, replayed, "r", by, "k")):
        with pytest.raises(ConfigurationError, match="no secret"):
            plan()
    assert platform.ledger.find_open_batch(PIPELINE) is None
    decisions.pause(platform, by)
    assert platform.decisions.find_pause(PIPELINE) is not None


def test_erasure_by_columns_that_are_not_hashed_asks_for_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_key_secret(monkeypatch, tmp_path, None)
    pipeline, clear = protected_pipeline(), ErasureKey((("number", "1"),))
    assert protect_key(pipeline, clear) == clear
    with pytest.raises(ConfigurationError, match="knows no connection"):
        protect_key(pipeline, ErasureKey((("id", "1"),)))


def test_replay_of_records_whose_bytes_were_not_kept_says_how_to_read_them_again() -> None:
    partition = TopicPartition("orders", 0)
    kept, without = QuarantinedRecord(partition, 1, 10), QuarantinedRecord(partition, 2, 0, is_kept=False)
    require_payloads("orders", [kept])
    with pytest.raises(ReplayRefusedError) as refused:
        require_payloads("orders", [kept, without])
    assert str(refused.value).startswith("Quarantine has no bytes of orders[0] 2..3. Nothing was changed.")
    assert 'batchledger replay orders --range "orders[0] 2..3" --reason WHY' in str(refused.value)


def test_form_of_an_erased_key_tells_every_other_way_in_which_rows_may_hold_its_values() -> None:
    fingerprint, other = fingerprint_of(SECRET), fingerprint_of(SECRET.upper())
    said = [describe_form(["email", "id"], {"email": each}, fingerprint) for each in ColumnProtection]
    said += [describe_form(["email", "id"], ALL, other), describe_form(["id"], ALL, other)]
    assert len(set(said)) == 5
    assert said[-1] == ""
    assert describe_form(["id", "email"], ALL, fingerprint) == f"email hash {fingerprint.hex()}" == said[0]


def test_key_of_an_erasure_has_the_form_of_the_rows_that_it_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only rows from before a column was dropped have it, in clear text."""
    source = {"topics": ["orders"], "schema": SCHEMA, "protect": {"email": "hash", "note": "drop"}}
    content = {"name": "orders", "source": source, "sink": {"table": "orders"}}
    pipeline = PipelineConfig.model_validate(content)
    use_key_secret(monkeypatch, tmp_path, SECRET.decode())
    forms = [protect_key(pipeline, ErasureKey.parse(each)).form for each in (["note=a"], ["note=a", "email=b"])]
    assert forms == ["", f"email hash {fingerprint_of(SECRET).hex()}"]
