"""A look at a table that others write, as a task: in the DAG of its file, or behind any load in a person's own DAG.

Nothing heavy is imported here, because DAG files are parsed through this module.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Param, TaskGroup, XComArg
from airflow.sdk.exceptions import AirflowFailException
from typing_extensions import override

from batchledger.interfaces.airflow import lineage, triggers
from batchledger.interfaces.airflow.task_group import RETRIES
from batchledger.model.errors import ConfigurationError
from batchledger.model.runs import FILE_TAG, write_host_tags

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from batchledger.config.watch_file import WatchConfig

EVERYTHING = "everything"
"""The field of the form, and the key of a run's configuration."""


class WatchOperator(BaseOperator):
    """Look once at a table that others write; fail for good if it is wrong, or if that cannot be said.

    ``watch`` is the name of a watch file. With ``everything`` all that is proved is proved again. Before the task
    fails, alerts are sent, and what it returns is there. A table or a topic that does not answer is tried again.
    """

    def __init__(self, *, watch: "WatchConfig | str", everything: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        lineage.silence_task(self)
        if self.has_dag():  # type: ignore[no-untyped-call]
            name = watch if isinstance(watch, str) else watch.name
            self.dag.tags |= write_host_tags(self.dag.dag_id, self.task_id.rpartition(".")[0], [name])
        self.watch, self.everything = watch, everything
        self.proved: WatchConfig | None = None

    @override
    def execute(self, context: "Context") -> dict[str, Any]:
        """Look, and return what ``describe_look`` says."""
        from batchledger.config.watch_file import load_watch
        from batchledger.database.sessions import keep_connections
        from batchledger.interfaces.airflow import terms
        from batchledger.interfaces.airflow.batch_of_run import find_present_place
        from batchledger.interfaces.airflow.pushed_metrics import push_look
        from batchledger.monitoring.watched_tables import describe_look, tell_failure
        from batchledger.proof.watching import WatchOutcome
        from batchledger.watching.telling import look_and_tell

        with terms.in_airflow_terms(), keep_connections():
            config = load_watch(self.watch) if isinstance(self.watch, str) else self.watch
            run = find_present_place().name_for(config.name)
            is_own = run == context["dag_run"].run_id
            everything = self.everything or (is_own and read_form(context["dag_run"].conf or {}))
            look = look_and_tell(config, everything=everything, run=run, tell=self.log.info)
        push_look(look)
        told = describe_look(look)
        if look.outcome is not WatchOutcome.PROVED:
            context["ti"].xcom_push(key="return_value", value=told)
            raise AirflowFailException(tell_failure(look))
        self.proved = config
        lineage.let_through(self)
        self.log.info("%s", told)
        return told

    def get_openlineage_facets_on_complete(
        self, ti: "RuntimeTaskInstanceProtocol"
    ) -> "OperatorLineage[Any, Any] | None":
        """Return what OpenLineage hears of a proof. Airflow's provider calls it when the task has ended."""
        from batchledger.interfaces.airflow.lineage_facets import describe_proof, send_start
        from batchledger.watching.building import name_datasets

        send_start(ti)
        return None if self.proved is None else describe_proof(*name_datasets(self.proved))


class WatchTaskGroup(TaskGroup):
    """A look at a table that others write, to stand behind their load.

    ``load >> WatchTaskGroup("prove", watch="payments")``: what follows it waits for the proof. ``watch`` and
    ``everything`` as for ``WatchOperator``; ``settings`` are for Airflow's task group. Its task is tried three times
    more, unless its ``default_args`` or the DAG's say otherwise.
    """

    def __init__(self, group_id: str, *, watch: str, everything: bool = False, **settings: Any) -> None:
        super().__init__(group_id, **settings)
        self.default_args = {**RETRIES, **(self.dag.default_args if self.has_dag() else {}), **self.default_args}
        with self:
            self.last = WatchOperator(task_id="look", watch=watch, everything=everything)

    @property
    def look(self) -> XComArg:
        """What the look has said: the outcome, how many offsets are proved, and what was found."""
        return XComArg(self.last)


def build_watch_dag(watch: "WatchConfig", default_args: Mapping[str, Any], tags: Sequence[str]) -> DAG:
    """Return the DAG of a watch file: one task that looks."""
    form = Param(
        False,
        type="boolean",
        title="Prove all again",
        description="Also what earlier looks have proved, from the first offset on.",
    )
    with DAG(
        watch.name,
        schedule=triggers.choose_timetable(watch.schedule),
        params={EVERYTHING: form},
        catchup=False,
        max_active_runs=1,
        default_args={**default_args, **watch.dag.write_default_args()},
        tags=[FILE_TAG, *tags, *watch.dag.tags],
        description=f"Proves {watch.table.name} against {', '.join(watch.source.topics)}; reads only",
    ) as dag:
        WatchOperator(task_id="look", watch=watch)
    return dag


def read_form(configuration: Mapping[str, Any]) -> bool:
    """Return whether a run of the file's DAG is asked to prove all again. Raises ConfigurationError.

    A setting of Airflow decides whether the configuration has passed the form's JSON schema, so it is checked here,
    too. Names that other tools leave there are ignored, unless they are nearly the field's.
    """
    near = [each for each in configuration if difflib.get_close_matches(str(each).lower(), [EVERYTHING], cutoff=0.8)]
    wrong = [each for each in near if each != EVERYTHING or not isinstance(configuration[each], bool | None)]
    if wrong:
        raise ConfigurationError(
            f"{wrong[0]} in the configuration of the run asks for nothing. Nothing was looked at.",
            why=f"The form has one field: {EVERYTHING}, true or false.",
            advice=f'Write {{"{EVERYTHING}": true}}.',
            subject=EVERYTHING,
        )
    return bool(configuration.get(EVERYTHING))
