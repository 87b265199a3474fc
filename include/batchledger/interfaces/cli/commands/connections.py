"""``batchledger connections``: what the pipelines name, where it was found, and whether it answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from batchledger.config.named_connections import LEDGER_KEYS, list_named
from batchledger.interfaces.cli.command_line import select_pipelines
from batchledger.interfaces.cli.display.connections import Listed, describe_connections
from batchledger.interfaces.cli.printing import Shown
from batchledger.model.errors import BatchledgerError, ConnectionMissingError
from batchledger.settings.connections import Connection, load_with_place, require_type


def connections(
    pipelines: Annotated[
        list[str] | None, typer.Argument(metavar="PIPELINE", help="Some pipelines; otherwise all of the folder.")
    ] = None,
    *,
    test: Annotated[bool, typer.Option("--test", help="Ask behind each connection. Nothing is changed there.")] = False,
) -> Shown:
    """List the connections that pipelines name, and where Airflow has each; with --test, whether it answers.

    Exit code 1 if one is missing, cannot be used, or does not answer.
    A webhook and a channel of Apprise are not asked: they would deliver a message.
    """
    named = _list_uses(pipelines or [])
    loaded: dict[str, Connection] = {}
    listed: dict[str, Listed] = {}
    for name, each in named.items():
        try:
            loaded[name], place = load_with_place(name, *next(iter(each.place_by_types.items())))
            listed[name] = replace(each, type=loaded[name].type, found_in=place)
            for types, asked_by in each.place_by_types.items():
                if types:
                    require_type(loaded[name], *types, asked_by=asked_by)
        except ConnectionMissingError as error:
            if each.pipelines_by_key.keys() != {LEDGER_KEYS}:
                listed[name] = replace(each, error=error)
        except BatchledgerError as error:
            listed[name] = replace(listed.get(name, each), error=error)
    return describe_connections(list((_test(listed, loaded) if test else listed).values()), is_tested=test)


def _list_uses(names: Sequence[str]) -> dict[str, Listed]:
    """Return the connections by their ids, in the order of files and their keys."""
    found: dict[str, Listed] = {}
    for pipeline in select_pipelines(names):
        for key, name, types in list_named(pipeline):
            each = found.setdefault(name, Listed(name))
            each.place_by_types.setdefault(types, f"{pipeline.file}: {key}")
            each.pipelines_by_key.setdefault(key, []).append(pipeline.name)
    return found


def _test(listed: dict[str, Listed], loaded: dict[str, Connection]) -> dict[str, Listed]:
    """Return the connections with what they answer. All are asked at once."""
    from batchledger.interfaces.trials import Question, ask, prepare_question

    tested, questions = dict(listed), dict[str, Question]()
    for name, each in listed.items():
        if each.error is not None:
            continue
        try:
            prepared = [prepare_question(loaded[name], key) for key in each.pipelines_by_key]
        except BatchledgerError as error:
            tested[name] = replace(each, error=error)
            continue
        for question in prepared:
            if isinstance(question, str):
                tested[name] = replace(each, words=question)
            else:
                questions[name] = question
    for name, answer in ask(questions).items():
        tested[name] = replace(listed[name], words=answer.words, error=answer.error, milliseconds=answer.milliseconds)
    return tested
