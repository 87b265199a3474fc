"""What a rename changes, and why one is refused, or a pipeline under a name that it had before.

A pipeline keeps its history and gives its old name up. Nothing begins a new history under that name: a file that still
has it would read the same records into the same target once more.
"""

from collections.abc import Sequence

from batchledger.model.batch import Batch
from batchledger.model.counting import describe_count
from batchledger.model.effects import Effect
from batchledger.model.errors import ConfigurationError, DecisionRefusedError


def renaming(pipeline: str, to: str) -> Effect:
    """The pipeline has another name. Everything else of it stays."""
    return Effect({"name": pipeline}, {"name": to})


def renamed(pipeline: str, to: str) -> ConfigurationError:
    """Say that a person has renamed the pipeline, and that its file has to follow."""
    return ConfigurationError(
        f"{pipeline} is renamed: its history belongs to {to}. Nothing was written.",
        why="Under the old name, the pipeline would read its topics from the beginning, into a target that has them.",
        advice=f"Call the file {to}.yaml, and write name: {to} in it. It goes on where {pipeline} ended.\n"
        f"To see who renamed it: batchledger batches {to}\n"
        f"To take the old name back: batchledger rename {to} {pipeline} --reason WHY",
        pipeline=pipeline,
        subject=to,
    )


def name_taken(pipeline: str, to: str) -> DecisionRefusedError:
    """Say that the ledger has the new name already: two histories are never joined."""
    return DecisionRefusedError(
        f"{pipeline} is not renamed: the ledger has a pipeline {to}. Nothing was changed.",
        why="Each has a history of its own, and their batches cannot be joined.",
        advice=f"Look at it: batchledger batches {to}\nOtherwise name another new name.",
        pipeline=pipeline,
        subject=to,
    )


def name_given_up(pipeline: str, to: str, owner: str) -> DecisionRefusedError:
    """Say that the new name is one that another pipeline had: a file that still has it must stay refused."""
    return DecisionRefusedError(
        f"{pipeline} is not renamed: {owner} was called {to} before. Nothing was changed.",
        why=f"A file of {owner} that still has the old name would write to the history of {pipeline}.",
        advice="Name another new name.",
        pipeline=pipeline,
        subject=to,
    )


def require_idle(pipeline: str, to: str, open_batches: Sequence[Batch]) -> None:
    """Refuse to rename a pipeline while a batch is open: a run may be at work on it, under the old name."""
    if not open_batches:
        return
    named = ", ".join(f"{each.subject} ({each.state})" for each in open_batches)
    count = describe_count(len(open_batches), "batch is", "batches are")
    first = open_batches[0]
    raise DecisionRefusedError(
        f"{pipeline} is not renamed: {count} open. Nothing was changed.",
        why=f"Open are {named}. A run that has one writes under the name {pipeline}.",
        advice=f"Let nothing new be planned: batchledger pause {pipeline} --reason WHY\n"
        f"Finish the batch: batchledger run {pipeline} --batch {first.batch_id}\n"
        f"Or discard it: batchledger discard {first.batch_id} --reason WHY\n"
        f"Then rename: batchledger rename {pipeline} {to} --reason WHY",
        pipeline=pipeline,
        batch_id=first.batch_id,
    )
