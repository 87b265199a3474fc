"""The steps of a batch as spans, if Airflow's traces are on; otherwise nothing happens here.

Airflow makes a trace of each run and a span of each task, and sends them. The spans of a step and of its parts lie
below the span of its task. They hold names, counts and offsets. They never hold a value of a record, a secret, or the
words of an error, which may quote a value: an error is its class alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from opentelemetry.trace import Span, StatusCode, get_tracer

from batchledger.lifecycle.tracing import StepPart
from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, Batch
from batchledger.model.offsets import count_offsets
from batchledger.model.published import RANGES_TOLD

if TYPE_CHECKING:
    from batchledger.model.published import PublishedBatch

PLAN = "plan"


@contextmanager
def trace_step(step: str, pipeline: str, batch_id: int | None = None) -> Iterator[Span]:
    """Trace what a task does, for the duration of the block; ``batch_id`` is None if the step finds it."""
    with _open(step, pipeline=pipeline) as span:
        if batch_id is not None:
            _tell(span, batch_id=batch_id)
        yield span


@contextmanager
def trace_part(part: StepPart, attempt: Attempt, balances: Sequence[Balance] = ()) -> Iterator[None]:
    """See ``Trace``."""
    batch = attempt.batch
    with _open(part, pipeline=batch.pipeline, batch_id=batch.batch_id, attempt=attempt.number) as span:
        if balances:
            _tell(
                span,
                accepted=sum(each.accepted for each in balances),
                duplicates=sum(each.duplicates for each in balances),
                quarantined=sum(each.quarantined for each in balances),
            )
        yield


def tell_batch(span: Span, batch: Batch) -> None:
    """Say in a span which offsets the batch has, and how far it is; a span names the first ``RANGES_TOLD`` ranges."""
    if span.is_recording():
        _tell(
            span,
            batch_id=batch.batch_id,
            lane=str(batch.lane),
            state=str(batch.state),
            attempt=batch.attempt,
            ranges=[str(each) for each in batch.ranges[:RANGES_TOLD]],
            ranges_total=len(batch.ranges),
            offsets=count_offsets(batch.ranges),
        )


def tell_published(span: Span, published: "PublishedBatch") -> None:
    """Say in a span what has become of the records of a published batch."""
    _tell(span, accepted=published.accepted, duplicates=published.duplicates, quarantined=published.quarantined)


def _tell(span: Span, **attributes: str | int | Sequence[str]) -> None:
    span.set_attributes({f"batchledger.{name}": value for name, value in attributes.items()})


@contextmanager
def _open(name: str, **about: str | int) -> Iterator[Span]:
    tracer = get_tracer("batchledger")
    # The words of an error stay out; a skipped task is no error.
    span = tracer.start_as_current_span(f"batchledger.{name}", record_exception=False, set_status_on_exception=False)
    with span as opened:
        _tell(opened, **about)
        try:
            yield opened
        except AirflowSkipException:
            raise
        except BaseException as error:
            cause = error.__cause__ if isinstance(error, AirflowFailException) else None
            opened.set_status(StatusCode.ERROR)
            opened.set_attribute("error.type", type(cause or error).__name__)
            raise
