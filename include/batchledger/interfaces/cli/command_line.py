"""What several commands share: their arguments, who calls, and how to read what a person wrote."""

import inspect
import logging
import os
import pwd
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typing_extensions import override

from batchledger.interfaces import notation
from batchledger.interfaces.cli.printing import Shown, show
from batchledger.model.actors import UNKNOWN_USER, Actor
from batchledger.model.batch import Decision
from batchledger.model.errors import ConfigurationError, UnknownPipelineError
from batchledger.model.offsets import OffsetRange
from batchledger.model.runs import COMMAND_LINE_RUN
from batchledger.planning.replay import Window

if TYPE_CHECKING:
    from batchledger.config.pipeline_file import PipelineConfig

logger = logging.getLogger(__name__)

Name = Annotated[str, typer.Argument(metavar="PIPELINE", help="The name of a pipeline file, without .yaml.")]
MaybeName = Annotated[
    str | None, typer.Argument(metavar="PIPELINE", help="One pipeline; otherwise all pipelines of the folder.")
]
BatchId = Annotated[int, typer.Argument(metavar="ID", help="The number of a batch.")]
Connection = Annotated[str, typer.Option(help="The Airflow connection of the ledger's database.")]
IfGone = Annotated[
    str, typer.Option(help="If the pipeline file is gone: the Airflow connection of the ledger's database.")
]
OwnersLogin = Annotated[
    str | None,
    typer.Option(
        "--login",
        metavar="CONNECTION",
        help="Log in by this Airflow connection, as the owner of the ledger, instead of the pipeline's.",
    ),
]
Result = TypeVar("Result")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class Commands(typer.Typer):
    """Commands that return what they show: each has the option ``--json``, and is printed here.

    One that returns nothing prints for itself.
    """

    @override
    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        register = super().command(name, **settings)

        def add(function: Callable[..., Shown | Iterable[Shown] | None]) -> Any:
            register(_printing(function))
            return function

        return add


def _printing(function: Callable[..., Shown | Iterable[Shown] | None]) -> Callable[..., None]:
    """Return a function of the same arguments, and ``--json``, that prints the result and ends with its exit code."""
    said = inspect.signature(function)
    if said.return_annotation is None:
        return function  # type: ignore[return-value] # It returns nothing.

    def run(as_json: bool = False, **given: Any) -> None:
        shown = function(**given)
        if shown is not None and (code := show(shown, as_json)):
            raise typer.Exit(code)

    return take_more(run, function, as_json=(AsJson, False))


def take_more(
    run: Callable[..., Result], function: Callable[..., Any], **more: tuple[Any, Any]
) -> Callable[..., Result]:
    """Let ``run`` be a command with the text and the arguments of a function, and ``more``: annotation and default.

    Those without a default come first, as typer lists them.
    """
    said = list(inspect.signature(function).parameters.values())
    kind = inspect.Parameter.KEYWORD_ONLY
    said += [inspect.Parameter(name, kind, annotation=type_, default=usual) for name, (type_, usual) in more.items()]
    said.sort(key=lambda each: each.default is not each.empty)
    returned = inspect.signature(run).return_annotation
    run.__signature__ = inspect.Signature([each.replace(kind=kind) for each in said], return_annotation=returned)  # type: ignore[attr-defined]
    run.__doc__, run.__annotations__ = function.__doc__, {}
    return run


def load_pipeline(name: str) -> "PipelineConfig":
    """Return the pipeline of that name. Its reader is imported here, because only some commands need it."""
    from batchledger.config.pipeline_file import load_pipeline

    return load_pipeline(name)


def select_pipelines(names: Sequence[str] = ()) -> "Iterator[PipelineConfig]":
    """Yield the named pipelines, or all whose file is accepted; a refused file is logged."""
    from batchledger.config.pipeline_file import find_pipeline_files, read_pipeline_file

    for name in names:
        yield load_pipeline(name)
    for path in [] if names else find_pipeline_files():
        try:
            yield read_pipeline_file(path)
        except ConfigurationError as error:
            logger.warning("%s", error)


def find_known(name: str, connection: str) -> "tuple[PipelineConfig | None, str]":
    """Return a pipeline with the connection string of its ledger; if its file is gone, of the connection's ledger.

    Raises UnknownPipelineError if neither a file nor that ledger has the name.
    """
    from batchledger.ledger.retiring import is_known
    from batchledger.looking import ledger_dsn

    try:
        config = load_pipeline(name)
    except UnknownPipelineError as unknown:
        try:
            dsn = find_ledger(connection)
            if is_known(dsn, name):
                return None, dsn
        except ConfigurationError:
            raise unknown from None
        raise
    return config, ledger_dsn(config)


def name_connection(advice: str, connection: str) -> str:
    """Return advice with the connection in its commands about batches and retirement, if it is not the usual one."""
    from batchledger.monitoring.health import DEFAULT_LEDGER

    if connection == DEFAULT_LEDGER:
        return advice
    return re.sub(r"(batchledger (?:batch|retire) \S+)", rf"\1 --connection {connection}", advice)


def find_ledger(connection: str, option: str = "--connection") -> str:
    """Return the connection string of the ledger behind an Airflow connection that the option names."""
    from batchledger.settings.connections import load_connection, postgres_dsn

    return postgres_dsn(load_connection(connection, ("postgres",), option))


def find_ledger_of(pipeline: "PipelineConfig", login: str | None) -> str:
    """Return the connection string of the pipeline's ledger: by the connection ``login``, else by the pipeline's.

    Raises ConfigurationError if ``login`` leads to another database.
    """
    from batchledger.looking import ledger_dsn

    return _choose_login(pipeline.name, ledger_dsn(pipeline), login)


def find_ledger_named(name: str, login: str | None) -> str:
    """Return the connection string of the ledger of a pipeline or a watch, as ``find_ledger_of`` does."""
    from batchledger.config.pipeline_file import is_watch

    if not is_watch(name):
        return find_ledger_of(load_pipeline(name), login)
    from batchledger.config.watch_file import load_watch
    from batchledger.looking import watch_ledger_dsn

    return _choose_login(name, watch_ledger_dsn(load_watch(name)), login)


def _choose_login(name: str, dsn: str, login: str | None) -> str:
    from psycopg.conninfo import conninfo_to_dict

    if login is None:
        return dsn
    owners = find_ledger(login, "--login")
    wanted, found = (
        "{host}:{port}/{dbname}".format_map({"host": "", "port": 5432} | conninfo_to_dict(each))
        for each in (dsn, owners)
    )
    if found != wanted:
        raise ConfigurationError(
            f"Connection {login!r} leads to another database than the ledger of {name}. Nothing was changed.",
            why=f"The ledger is in {wanted}, and the connection leads to {found}.",
            advice="Name a connection that differs in its login only.",
            pipeline=name,
        )
    return owners


def run_name() -> str:
    """Return the name of this run for the ledger: ``cli__2026-11-21T10:00:00+00:00__ana@host``."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    actor = find_actor()
    return f"{COMMAND_LINE_RUN}{moment}__{actor.name}@{actor.host}"


def find_actor() -> Actor:
    """Return who runs this process, by the number of its user: LOGNAME and USER can say anything.

    The name is ``unknown`` if the machine has none for this number, as in a container.
    """
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = UNKNOWN_USER
    return Actor(name, uid, socket.gethostname())


def decide(reason: str) -> Decision:
    """Return the decision of the person who runs this process."""
    actor = find_actor()
    return Decision(actor.name, reason, actor.uid, actor.host)


def parse_range(text: str) -> OffsetRange:
    """Read ``orders[3] 10..25``. Raises typer.BadParameter."""
    try:
        return OffsetRange.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f'{error}, in quotes: "orders[3] 10..25"') from error


def parse_bounds(since: str, until: str) -> Window | OffsetRange:
    """Read two bounds as ``notation`` does. Raises typer.BadParameter."""
    try:
        return notation.parse_bounds(since, until)
    except ValueError as error:
        raise typer.BadParameter(f"--from and --until: {error}") from error


def parse_target(texts: Sequence[str]) -> notation.RewindTarget:
    """Read the target of a rewind as ``notation`` does. Raises typer.BadParameter."""
    try:
        return notation.parse_target(texts)
    except ValueError as error:
        raise typer.BadParameter(f"--to: {error}") from error
