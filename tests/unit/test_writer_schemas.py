"""A schema is stored as a text, and read back as it was."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.records.writer_schemas import Reference, SchemaType, SubjectVersion, WriterSchema

# Lone surrogates too: a registry may send them as escapes of JSON.
TEXTS = st.text(st.characters(exclude_categories=()))
SCHEMAS = st.builds(
    WriterSchema,
    st.integers(0, 2**32 - 1) | st.uuids().map(str) | st.builds(SubjectVersion, TEXTS, st.integers(1)).map(str),
    st.sampled_from(SchemaType),
    TEXTS,
    st.lists(st.builds(Reference, TEXTS, TEXTS)).map(tuple),
)


@given(SCHEMAS)
def test_stored_schema_is_read_back_as_it_was(schema: WriterSchema) -> None:
    assert schema.stored.isascii()
    assert WriterSchema.from_stored(schema.stored) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301


@given(SCHEMAS, SCHEMAS)
def test_fingerprints_are_equal_if_and_only_if_schemas_are(one: WriterSchema, other: WriterSchema) -> None:
    assert (one.fingerprint == other.fingerprint) == (one == other)


def test_stored_text_and_fingerprint_stay_as_ledgers_have_them() -> None:
    schema = WriterSchema(7, SchemaType.AVRO, '{"type": "é"}', (Reference("shop.Money", "{}"),))
    assert schema.stored == (
        r'{"id":7,"type":"AVRO","text":"{\"type\": \"\u00e9\"}","references":[{"name":"shop.Money","text":"{}"}]}'
    )
    assert schema.fingerprint == "c06783121f89776dc4d640880d8d2c3601eacdd308f053af40ab4b031ab54af4"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "7",
        "{}",
        json.dumps({"id": 1, "type": "XSD", "text": "", "references": []}),
        json.dumps({"id": 1, "type": "AVRO", "text": None, "references": []}),
        json.dumps({"id": 1, "type": "AVRO", "text": "", "references": [{"name": "x"}]}),
        json.dumps({"id": 1.5, "type": "AVRO", "text": "", "references": []}),
        json.dumps({"id": 1, "type": "AVRO", "text": "", "references": None}),
    ],
)
def test_text_that_is_no_stored_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        WriterSchema.from_stored(text)
