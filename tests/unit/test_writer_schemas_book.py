"""Which schema an id means: what the registry says, what is kept, and what becomes of a registry that is away."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from batchledger.lifecycle.writer_schemas import ASKED_AGAIN, SchemaBook
from batchledger.model.errors import (
    BatchledgerError,
    GuidsUnknownError,
    LoginRefusedError,
    SchemaChangedError,
    SchemaRefusedError,
    ServiceUnavailableError,
)
from batchledger.model.records.writer_schemas import SchemaId, SchemaType, SubjectVersion, WriterSchema
from batchledger.ports import KeptSchemas, SchemaRegistry

ONE = WriterSchema(1, SchemaType.AVRO, '{"type": "record", "name": "a", "fields": []}')
SAME = WriterSchema(1, SchemaType.AVRO, '{"type":"record","name":"a","fields":[]}')
OTHER = WriterSchema(1, SchemaType.AVRO, '{"type": "record", "name": "b", "fields": []}')


@dataclass
class Registered(SchemaRegistry):
    """A registry that answers in turn, and the last answer for ever."""

    answers: list[WriterSchema | BatchledgerError | None]
    asked: int = 0

    def fetch(self, wanted: SchemaId | SubjectVersion) -> WriterSchema | None:
        self.asked += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, BatchledgerError):
            raise answer
        return answer


@dataclass
class Kept(KeptSchemas):
    """What a ledger keeps."""

    kept: dict[SchemaId, WriterSchema] = field(default_factory=dict)
    used: list[SchemaId] = field(default_factory=list)

    def find(self, schema_id: SchemaId) -> WriterSchema | None:
        return self.kept.get(schema_id)

    def keep(self, schema: WriterSchema) -> WriterSchema:
        return self.kept.setdefault(schema.id, schema)

    def note_use(self, schema_id: SchemaId) -> None:
        self.used.append(schema_id)


AWAY = ServiceUnavailableError("the registry is away")


@pytest.fixture
def open_book() -> Callable[..., SchemaBook]:
    def open_(registry: Registered, kept: Kept) -> SchemaBook:
        return SchemaBook("r", registry, kept, wait=lambda _: None)

    return open_


Open = Callable[..., SchemaBook]


def test_schema_is_asked_for_once_kept_and_noted(open_book: Open) -> None:
    registry, kept = Registered([ONE]), Kept()
    book = open_book(registry, kept)
    assert [book.find(1), book.find(1)] == [ONE, ONE]
    assert (registry.asked, kept.kept, kept.used) == (1, {1: ONE}, [1])


def test_schema_that_is_known_later_is_waited_for(open_book: Open) -> None:
    registry, kept = Registered([None, None, ONE]), Kept()
    assert open_book(registry, kept).find(1) == ONE


def test_unknown_schema_is_no_error_and_is_asked_for_a_few_times(open_book: Open) -> None:
    registry, kept = Registered([None]), Kept()
    book = open_book(registry, kept)
    assert book.find(1) == "schema 1 is unknown to the registry"
    assert registry.asked == 1 + ASKED_AGAIN
    assert (kept.kept, kept.used) == ({}, [])


def test_any_bytes_may_be_an_id_so_patience_ends(open_book: Open) -> None:
    registry = Registered([None])
    book = open_book(registry, Kept())
    for schema_id in range(1_000):
        book.find(schema_id)
    assert registry.asked < 1_100


def test_guid_is_kept_and_looked_up_as_an_id_is(open_book: Open) -> None:
    guid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    schema, kept = replace(ONE, id=guid), Kept()
    assert open_book(Registered([schema]), kept).find(guid) == schema
    assert (kept.kept, kept.used) == ({guid: schema}, [guid])
    assert open_book(Registered([AWAY]), kept).find(guid) == schema
    assert open_book(Registered([None]), Kept()).find(guid) == f"schema {guid} is unknown to the registry"


def test_registry_that_has_no_way_to_guids_is_asked_for_one_and_then_for_ids_alone(open_book: Open) -> None:
    registry = Registered([GuidsUnknownError("no", why="It knows ids alone."), ONE])
    schema, kept = replace(ONE, id="guid 9"), Kept()
    kept.keep(schema)
    book = open_book(registry, kept)
    for number in range(3):
        assert book.find(f"guid {number}") == f"schema guid {number} cannot be read: It knows ids alone"
    assert (book.find("guid 9"), registry.asked) == (schema, 1)
    assert (book.find(1), registry.asked) == (ONE, 2)


def test_guid_that_is_refused_alone_leaves_its_neighbours_to_be_asked_for(open_book: Open) -> None:
    registry = Registered([SchemaRefusedError("no", why="It refuses this one."), replace(ONE, id="guid 1")])
    book = open_book(registry, Kept())
    assert book.find("guid 0") == "schema guid 0 cannot be read: It refuses this one"
    assert book.find("guid 1") == replace(ONE, id="guid 1")


def test_version_of_a_subject_is_kept_by_its_name_and_stays_when_the_registry_loses_or_changes_it(
    open_book: Open,
) -> None:
    version = SubjectVersion("orders-value", 3)
    name = "orders-value version 3"
    schema, kept = replace(ONE, id=name), Kept()
    assert open_book(Registered([schema]), kept).find(version) == schema
    assert (kept.kept, kept.used) == ({name: schema}, [name])
    for answer in (AWAY, None):
        assert open_book(Registered([answer]), kept).find(version) == schema
    with pytest.raises(SchemaChangedError, match="another schema orders-value version 3"):
        open_book(Registered([replace(OTHER, id=name)]), kept).find(version)
    assert open_book(Registered([None]), Kept()).find(version) == f"schema {name} is unknown to the registry"


def test_what_no_registry_gives_away_is_not_asked_for(open_book: Open) -> None:
    registry = Registered([AWAY])
    assert open_book(registry, Kept()).find(2**32 - 1) == "schema 4294967295 is unknown to the registry"
    assert registry.asked == 0


@pytest.mark.parametrize("error", [AWAY, LoginRefusedError("no login")])
def test_registry_that_is_away_is_an_error_only_for_what_is_not_kept(open_book: Open, error: BatchledgerError) -> None:
    registry, kept = Registered([error]), Kept({1: ONE, 3: ONE})
    book = open_book(registry, kept)
    assert (book.find(1), book.find(3)) == (ONE, ONE)
    # It is not asked again for what is kept: each time may take seconds.
    assert registry.asked == 1
    with pytest.raises(type(error)):
        book.find(2)


def test_schema_that_the_registry_has_lost_stays(open_book: Open) -> None:
    assert open_book(Registered([None]), Kept({1: ONE})).find(1) == ONE


def test_other_formatting_is_the_same_schema_and_another_schema_is_an_error(open_book: Open) -> None:
    assert open_book(Registered([SAME]), Kept({1: ONE})).find(1) == ONE
    with pytest.raises(SchemaChangedError, match="another schema 1"):
        open_book(Registered([OTHER]), Kept({1: ONE})).find(1)


def test_process_that_was_first_decides(open_book: Open) -> None:
    class Late(Kept):
        def find(self, schema_id: SchemaId) -> WriterSchema | None:
            return None

        def keep(self, schema: WriterSchema) -> WriterSchema:
            return OTHER

    with pytest.raises(SchemaChangedError):
        open_book(Registered([ONE]), Late()).find(1)


def test_schema_that_cannot_be_used_sets_its_records_aside(open_book: Open) -> None:
    refused = SchemaRefusedError("it refers to itself")
    assert open_book(Registered([refused]), Kept()).find(1) == "schema 1 cannot be read: it refers to itself"
    assert open_book(Registered([refused]), Kept({1: ONE})).find(1) == ONE


def test_book_is_pickled_with_what_it_needs() -> None:
    book = SchemaBook("r", Registered([ONE]), Kept())
    assert pickle.loads(pickle.dumps(book)).find(1) == ONE  # noqa: S301


def test_formatting_of_protobuf_does_not_matter() -> None:
    texts = ("message A {\n  int32 a = 1;\n}", "message A { int32 a = 1; }")
    one, two = (WriterSchema(1, SchemaType.PROTOBUF, each) for each in texts)
    assert one.means_the_same_as(two)
    assert not one.means_the_same_as(WriterSchema(1, SchemaType.PROTOBUF, "message A { int64 a = 1; }"))


def test_schema_that_is_no_json_is_compared_by_its_words() -> None:
    one = WriterSchema(1, SchemaType.AVRO, "string")
    assert one.means_the_same_as(WriterSchema(1, SchemaType.AVRO, " string "))
    assert not one.means_the_same_as(WriterSchema(1, SchemaType.AVRO, '"string"'))
