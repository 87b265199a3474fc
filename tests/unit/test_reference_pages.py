"""Pages of the documentation are compared with the code: states, checks, errors, connections, ports and commands."""

import re
from runpy import run_path
from typing import Any

import typer

from batchledger import cli
from batchledger.local.stack.defaults import PORT_BY_SERVICE
from batchledger.local.stack.home import port_variable
from batchledger.model.batch import BatchState
from batchledger.model.checks import ACCEPTED_BY_TARGET, CHECKS_NEVER_ACCEPTED, IntegrityCheck
from batchledger.model.findings import PipelineState
from batchledger.settings.kafka_options import CONNECTION_OPTIONS, OPTIONS_BY_MECHANISM
from tests.conftest import ROOT
from tests.unit.test_errors import FAMILY

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "adr")]
COMMAND = re.compile(r"(?:^[ \t$]*|`|: |\| )(batchledger [a-z][^`\n]*)", re.MULTILINE)


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def read_rows(text: str, heading: str) -> list[list[str]]:
    """The cells of each line of the first table below a heading."""
    below = text.partition(f"{heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table[0].splitlines()[2:]]


def test_every_state_is_on_the_page_in_its_order() -> None:
    text = read("reference/states-and-incidents.md")
    assert [row[0] for row in read_rows(text, "## States of a pipeline")] == list(PipelineState)
    assert [row[0] for row in read_rows(text, "## States of a batch")] == list(BatchState)


def test_every_check_is_on_the_page_with_whether_a_person_may_accept_its_failure() -> None:
    rows = {row[0].strip("`"): row[2] for row in read_rows(read("reference/checks.md"), "# The platform's own checks")}
    assert set(rows) == {*IntegrityCheck, ACCEPTED_BY_TARGET}
    assert {name for name, text in rows.items() if "Cannot be accepted" in text} == CHECKS_NEVER_ACCEPTED


def test_every_error_that_airflow_tries_again_is_on_the_page() -> None:
    named = [row[0].strip("`") for row in read_rows(read("reference/errors.md"), "## In Airflow")]
    assert sorted(named) == sorted(each.__name__ for each in FAMILY if each.retryable)


def test_every_option_and_mechanism_of_a_kafka_connection_is_on_the_page() -> None:
    accepted = " ".join(read("reference/connections.md").partition("\nAccepted:")[2].partition("All others")[0].split())
    assert tuple(re.findall(r"`([a-z.]+)`", accepted)) == CONNECTION_OPTIONS
    assert re.search(r"`sasl.mechanism` \(([^)]*)\)", accepted)[1] == ", ".join(OPTIONS_BY_MECHANISM)


def test_every_port_is_on_the_page_with_its_variable() -> None:
    text = read("reference/environment.md")
    rows = {row[0].strip("`"): row[1] for row in read_rows(text, "## Ports and environment variables")}
    ports = {port_variable(name): str(port) for name, port in PORT_BY_SERVICE.items()}
    assert {name: port for name, port in rows.items() if name.endswith("_PORT")} == ports


def write_page_of_commands() -> str:
    """The commands as docs/reference/cli.md has them when the site is built."""
    return "\n".join(run_path(str(DOCS / "extensions" / "commands.py"))["write_commands"]())


def list_untold(written: str) -> list[str]:
    """The commands whose section, in the text of the page, lacks their help or one of their options."""
    sections = dict(re.findall(r"(?ms)^### ([^\n]+)\n(.*?)(?=^##|\Z)", written))
    group: Any = typer.main.get_command(cli.app)
    return [name for name in group.commands if not _is_told(cli.load_command(name), sections.get(name, ""))]


def _is_told(command: Any, section: str) -> bool:
    options = [each.opts[0] for each in command.params if each.opts[0].startswith("--") and each.opts[0] != "--help"]
    return " ".join((command.help or "").split()) in section and all(f"`{each}" in section for each in options)


def test_page_of_commands_has_the_help_and_the_options_of_each_command() -> None:
    assert not list_untold(write_page_of_commands())


def test_command_without_its_own_text_or_an_option_is_found() -> None:
    """The negative control."""
    written = write_page_of_commands()
    wrong = written.replace("List the batches of a pipeline", "Be listed").replace("`--until-caught-up", "`--until")
    assert wrong.count("Be listed") == 1
    assert list_untold(wrong) == ["run", "batches"]


def list_marked_twice(written: str) -> list[str]:
    """The usage lines, in the text of the page, with a mark that typer adds and a name of an argument has again."""
    usages = re.findall(r"(?m)^```text\n(.*)$", written)
    return [each for each in usages if re.search(r"\[\[|\.\.\.\]|[{}]", each)]


def test_usage_of_each_command_marks_once_what_may_be_left_out_or_repeated() -> None:
    written = write_page_of_commands()
    assert not list_marked_twice(written)
    assert "\nbatchledger metrics [OPTIONS] [PIPELINE]...\n" in written
    assert "\nbatchledger skip [OPTIONS] PIPELINE RANGE...\n" in written


def test_usage_with_a_mark_twice_is_found() -> None:
    """The negative control."""
    usages = ["[[PIPELINE]]", "[PIPELINE]...", "[[PIPELINE]...]...", "PIPELINE RANGE...}...", "RANGE..."]
    assert list_marked_twice("".join(f"```text\n{each}\n```\n" for each in usages)) == usages[0:1] + usages[2:4]


def find_wrong(text: str) -> list[str]:
    """The commands in a text that the command line does not have, and options that a command does not have."""
    return [f"{why}: {line}" for line in COMMAND.findall(text) if (why := explain_wrong(line))]


def explain_wrong(line: str) -> str:
    """Return what is wrong with a command, or nothing. A line of a page may end in the middle of an argument."""
    top = group = typer.main.get_command(cli.app)
    words = re.split(r"\s+", line.split("  #", maxsplit=1)[0].strip())[1:]
    known = {"--help"}
    while words and hasattr(group, "commands"):
        if words[0] not in group.commands:
            return f"{words[0]} is no command"
        name = words.pop(0)
        group = cli.load_command(name) if group is top else group.commands[name]
    for parameter in group.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    options = [word.split("=")[0].rstrip(".,;:)") for word in words if word.startswith("--")]
    return ", ".join(f"no option {each}" for each in options if each not in known)


def test_every_command_that_a_page_names_exists_with_its_options() -> None:
    wrong = [f"{page.relative_to(ROOT)}: {each}" for page in PAGES for each in find_wrong(page.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


def test_wrong_commands_and_options_are_found() -> None:
    """The negative control."""
    assert find_wrong("`batchledger fly orders`") == ["fly is no command: batchledger fly orders"]
    assert find_wrong("batchledger run orders --fast") == ["no option --fast: batchledger run orders --fast"]
    assert find_wrong("batchledger run orders --until-caught-up\n`batchledger verify`") == []
