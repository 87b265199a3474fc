"""What the DAG of a pipeline file is for Airflow, and for people who look for it there."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from batchledger.model.runs import HOST_TAG
from batchledger.settings.values import REFERENCE, Duration, Section, unrepeated, written_as

Callback = Annotated[str, written_as(REFERENCE, "module:function, such as shop.alerts:call_ana")]
_Text = Annotated[str, Field(min_length=1, max_length=200)]


def check_tag(tag: str) -> str:
    """Return a tag for the DAG of a file. Raises ValueError for one that names what stands in a DAG of one's own."""
    if tag.startswith(HOST_TAG):
        raise ValueError(f"a tag that begins with {HOST_TAG} says what stands in a DAG of one's own")
    return tag


_Tag = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(check_tag)]


@dataclass(frozen=True)
class NamedFunction:
    """Calls the function that a text names as ``module:function``, and imports it only then."""

    name: str

    def __call__(self, context: Any) -> None:
        """Call it with what Airflow says of the task."""
        module, _, function = self.name.partition(":")
        getattr(import_module(module), function)(context)


class DagConfig(Section):
    """The DAG of this file. What is not set is as `build_dags` says, or as Airflow has it."""

    tasks: Literal["steps", "one", "none"] = "steps"
    """`steps`: a task for each step of a batch, and one batch a run. `one`: one task for all steps, which takes the
    whole backlog in a run. It is faster, and its log alone shows which step has failed. `none`: the file has no DAG,
    because the pipeline stands in a DAG of one's own.
    """
    owner: _Text | None = None
    """Who Airflow shows as owner."""
    tags: Annotated[list[_Tag], unrepeated("tag")] = Field(default_factory=list)
    """Tags beside `batchledger`. None begins with `batchledger:`, which says what stands in a DAG of one's own."""
    pool: _Text | None = None
    """The pool of its tasks."""
    queue: _Text | None = None
    """The queue of its tasks, for executors that have queues."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    """`priority_weight` of its tasks."""
    retries: Annotated[int, Field(ge=0, le=100)] | None = None
    """How often Airflow tries a task again; 3 if nothing else is said."""
    retry_delay: Duration | None = None
    """How long it waits before the first time; 10s if nothing else is said."""
    on_failure: Callback | None = None
    """`module:function` that Airflow calls with its context when a task has failed for good."""
    on_retry: Callback | None = None
    """The same when a task is going to be tried again."""

    def write_default_args(self) -> Mapping[str, Any]:
        """Return what is set of each task, in Airflow's names; a duration in seconds, a callback as a function."""
        names = {"priority": "priority_weight", "on_failure": "on_failure_callback", "on_retry": "on_retry_callback"}
        given = self.model_dump(exclude={"tasks", "tags"}, exclude_none=True)
        callbacks = {each: NamedFunction(given[each]) for each in ("on_failure", "on_retry") if each in given}
        return {names.get(name, name): value for name, value in (given | callbacks).items()}
