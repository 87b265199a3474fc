"""``@task.ledger_batch``: a task that gets the batches whose events have started its run, and reads exactly their rows.

DAG files import this module, so nothing heavy is imported here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from typing_extensions import override

if TYPE_CHECKING:
    from airflow.sdk import Context

ARGUMENT = "batches"


@dataclass(frozen=True, slots=True)
class LoadedBatches:
    """Batches of one target, of which a run has had events; each of them once, by their numbers.

    ``connection`` is the id of the connection of the target, and ``target`` its table, topic or Iceberg table there.
    ``has_replay``: a replay is among them. It takes rows over from older batches, which have fewer since.
    """

    pipeline: str
    connection: str
    target: str
    batch_ids: tuple[int, ...]
    rows: int
    has_replay: bool
    events: tuple[Mapping[str, Any], ...]

    @property
    def predicate(self) -> str:
        """The condition in SQL that picks the rows of these batches and no others: ``_batch_id in (17, 18)``."""
        return f"_batch_id in ({', '.join(map(str, self.batch_ids))})"


def collect_batches(events: Iterable[Mapping[str, Any] | None]) -> list[LoadedBatches]:
    """Return what events say, by targets. An event that came by its asset and by its alias counts once.

    Events of other assets, which have nothing of a batch, are left out.
    """
    by_target: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for event in events:
        if event is not None and {"pipeline", "alias", "batch_id"} <= event.keys():
            by_target.setdefault((event["pipeline"], event["alias"]), {})[int(event["batch_id"])] = event
    return [_join(*target, found) for target, found in by_target.items()]


def _join(pipeline: str, alias: str, found: Mapping[int, Mapping[str, Any]]) -> LoadedBatches:
    connection, _, target = alias.partition("/")
    events = tuple(found[each] for each in sorted(found))
    return LoadedBatches(
        pipeline=pipeline,
        connection=connection,
        target=target,
        batch_ids=tuple(sorted(found)),
        rows=sum(each["rows"] for each in events),
        has_replay=any(each["lane"] == "replay" for each in events),
        events=events,
    )


class _LedgerBatchOperator(DecoratedOperator, PythonOperator):
    """Calls the function with the batches of this run."""

    custom_operator_name = "@task.ledger_batch"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any],
        op_kwargs: Mapping[str, Any],
        **settings: Any,
    ) -> None:
        # Filled in when the task runs; without it the signature would not fit now.
        called: dict[str, Any] = {
            "python_callable": python_callable,
            "op_args": op_args,
            "op_kwargs": {ARGUMENT: [], **op_kwargs},
        }
        super().__init__(kwargs_to_upstream=called, **called, **settings)

    @override
    def execute(self, context: "Context") -> Any:
        told = context["triggering_asset_events"]
        events = [event.extra for key in told for event in told[key]]
        self.op_kwargs = {**self.op_kwargs, ARGUMENT: collect_batches(events)}
        return super().execute(context)


def ledger_batch_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **settings: Any
) -> TaskDecorator:
    """Wrap a function with a parameter ``batches`` into a task: a list of ``LoadedBatches``, empty without an event."""
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=_LedgerBatchOperator,
        **settings,
    )
