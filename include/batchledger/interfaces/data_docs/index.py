"""The templates, and the page over all pipelines. It needs summaries only, so Airflow's API server can make it too."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, Template

from batchledger.interfaces.data_docs.folder import POLICY
from batchledger.interfaces.markup import load_templates


def find_template(name: str) -> Template:
    """Return a template of the pages."""
    return _templates().get_template(name)


def write_index(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the page over these pipelines."""
    return find_template("index.html.j2").render(pipelines=summaries)


@cache
def _templates() -> Environment:
    return load_templates(__package__, policy=POLICY)
