"""Spans of the steps: their order, what they say, and that no words of an error are in them; none if traces are off."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from batchledger.interfaces.airflow import tracing
from batchledger.interfaces.airflow.tracing import tell_batch, trace_part, trace_step
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.tracing import StepPart
from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, Batch, Step
from batchledger.model.errors import BatchBlockedError, ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.model.published import RANGES_TOLD
from tests.fakes.world import ORDERS_0, PIPELINE, World, stage_and_audit, staged_twice
from tests.unit.test_reference_pages import read, read_rows

CANARY = "canary 4111-1111"
AUDITED = [StepPart.JUDGE_ROWS, StepPart.GATHER_FACTS, StepPart.JUDGE_FACTS, StepPart.STORE_RESULT]


@dataclass
class Told:
    """What a tracer hears: each part when it begins, and in how many others it lies; and which parts have ended."""

    begun: list[tuple[int, StepPart]] = field(default_factory=list)
    ended: list[StepPart] = field(default_factory=list)

    @contextmanager
    def trace(self, part: StepPart, attempt: Attempt, balances: Sequence[Balance] = ()) -> Iterator[None]:
        """See ``Trace``."""
        self.begun.append((len(self.begun) - len(self.ended), part))
        try:
            yield
        finally:
            self.ended.append(part)


def test_parts_of_a_batch_are_traced_in_their_order(world: World) -> None:
    told = Told()
    run_batch.run_once(replace(world.process(), trace=told.trace), "run-1")
    delivered = [(0, StepPart.TRANSACTION), (1, StepPart.PUBLISH_ROWS)]
    if world.foreign is not None:
        # Announced in a transaction of its own.
        delivered = [(0, StepPart.TRANSACTION), *delivered, (1, StepPart.COMMIT_SINK)]
    audited = [(0, part) for part in AUDITED]
    assert told.begun == [(0, StepPart.READ), *audited, *delivered, (0, StepPart.CLEAN_UP)]
    assert sorted(told.ended) == sorted(part for _, part in told.begun)


def test_part_that_fails_ends(world: World) -> None:
    told = Told()
    with pytest.raises(BatchBlockedError):
        stage_and_audit(replace(world.process(alter=staged_twice), trace=told.trace), "run-1")
    assert told.ended == [StepPart.READ, *AUDITED]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What a tracer of the SDK sends, as if Airflow had configured it."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "get_tracer", provider.get_tracer)
    return exporter


def traced(platform: Platform) -> Platform:
    return replace(platform, trace=trace_part)


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("batchledger."): value for name, value in (span.attributes or {}).items()}


def test_spans_of_parts_lie_in_the_span_of_their_step_and_say_batch_offsets_and_counts(
    world: World, exported: InMemorySpanExporter
) -> None:
    platform = traced(world.process())
    with trace_step(tracing.PLAN, PIPELINE) as span:
        planned = plans.plan(platform, "run-1")
        assert planned is not None
        tell_batch(span, planned)
    for step, work in (("stage", run_batch.stage), ("audit", run_batch.audit)):
        with trace_step(step, PIPELINE, planned.batch_id) as span:
            tell_batch(span, work(platform, planned.batch_id, "run-1"))
    spans = {each.name.removeprefix("batchledger."): each for each in exported.get_finished_spans()}
    assert set(spans) == {"plan", "stage", "stage.read", "audit", *AUDITED}
    for part in (StepPart.READ, *AUDITED):
        parent, within = spans[part].parent, spans[part.partition(".")[0]].context
        assert parent is not None
        assert (parent.span_id, parent.trace_id) == (within.span_id, within.trace_id)
    assert attributes_of(spans["plan"]) == {
        "pipeline": PIPELINE,
        "batch_id": planned.batch_id,
        "lane": "live",
        "state": "planned",
        "attempt": 0,
        "ranges": ("orders[0] 0..10", "orders[1] 0..5"),
        "ranges_total": 2,
        "offsets": 15,
    }
    about = {"pipeline": PIPELINE, "batch_id": planned.batch_id, "attempt": 1}
    assert attributes_of(spans["stage.read"]) == about
    counts = {"accepted": 15, "duplicates": 0, "quarantined": 0}
    assert attributes_of(spans["audit.store_result"]) == about | counts


def test_span_names_a_bounded_number_of_ranges(world: World, exported: InMemorySpanExporter) -> None:
    batch = plans.plan(world.process(), "run-1")
    assert isinstance(batch, Batch)
    many = tuple(OffsetRange(ORDERS_0, 2 * each, 2 * each + 1) for each in range(5000))
    with trace_step("stage", PIPELINE) as span:
        tell_batch(span, replace(batch, ranges=many))
    (told,) = exported.get_finished_spans()
    assert (len(attributes_of(told)["ranges"]), attributes_of(told)["ranges_total"]) == (RANGES_TOLD, 5000)


def fail(error: BaseException) -> None:
    """Leave a step with an error."""
    with trace_step("stage", PIPELINE, 17):
        raise error


def in_airflow_terms(error: Exception) -> AirflowFailException:
    """The error with which a task fails for good because of another one."""
    failure = AirflowFailException(str(error))
    failure.__cause__ = error
    return failure


@pytest.mark.parametrize(
    ("error", "type_"),
    [
        (ValueError(CANARY), "ValueError"),
        (in_airflow_terms(ConfigurationError(CANARY)), "ConfigurationError"),
        (KeyboardInterrupt(CANARY), "KeyboardInterrupt"),
    ],
    ids=["retried", "for good", "interrupted"],
)
def test_error_is_its_class_and_none_of_its_words(
    exported: InMemorySpanExporter, error: BaseException, type_: str
) -> None:
    with pytest.raises(type(error)):
        fail(error)
    (span,) = exported.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert attributes_of(span) == {"pipeline": PIPELINE, "batch_id": 17, "error.type": type_}
    assert CANARY not in span.to_json()


def test_opentelemetry_itself_would_send_the_words_of_an_error(exported: InMemorySpanExporter) -> None:
    """The negative control."""
    with pytest.raises(ValueError, match=CANARY), tracing.get_tracer("tests").start_as_current_span("stage"):
        raise ValueError(CANARY)
    assert CANARY in exported.get_finished_spans()[0].to_json()


def test_every_step_and_part_is_on_the_page_of_the_documentation() -> None:
    rows = read_rows(read("guides/tracing.md"), "## The trace of a run")
    told = {row[0].strip("`").removeprefix("batchledger.") for row in rows}
    assert told == {tracing.PLAN, *Step, *StepPart}


def test_skipped_step_is_no_error(exported: InMemorySpanExporter) -> None:
    with pytest.raises(AirflowSkipException):
        fail(AirflowSkipException("nothing to do"))
    (span,) = exported.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes_of(span)


def test_nothing_is_recorded_unless_airflow_has_configured_a_tracer(world: World) -> None:
    with trace_step("stage", PIPELINE, 17) as span:
        assert not span.is_recording()
        assert run_batch.run_once(traced(world.process()), "run-1") is not None
