"""The folder of the pages: where each page lies. Each is written in one step.

``<pipeline>/<batch>.html`` is the page of a batch, ``<pipeline>/index.html`` the history, and ``index.html`` the page
over all pipelines. ``<pipeline>/summary.json`` is what this page and the links of runs need. Standard library only,
because Airflow's API server reads the folder too.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from batchledger.config.places import default_local_folder, make_private_folder

DOCS_VARIABLE = "BATCHLEDGER_DOCS"
HISTORY = "index"
# A page loads nothing, runs no script and sends nothing anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"

_PIPELINE = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_PAGE = re.compile(r"(?P<page>[0-9]{1,19}|index)(\.html)?", re.ASCII)
_STAMP_CHARACTERS = 400
_STAMP = re.compile(r"<!-- stamp ([0-9a-f]+) -->")


@dataclass(frozen=True, slots=True)
class DocsFolder:
    """The pages on disk. Several processes may write them at the same time: a reader finds a whole page or none."""

    path: Path

    @classmethod
    def of_environment(cls) -> Self:
        """The folder that ``BATCHLEDGER_DOCS`` names, else ``docs`` in the folder of the local services."""
        return cls(Path(os.environ.get(DOCS_VARIABLE) or default_local_folder() / "docs"))

    @property
    def index(self) -> Path:
        """The page over all pipelines."""
        return self.path / "index.html"

    def find_page(self, pipeline: str, page: str) -> Path | None:
        """Return the file of ``17``, ``17.html`` or ``index.html``; None for a name that no page can have."""
        named = _PAGE.fullmatch(page)
        if named is None or not _PIPELINE.fullmatch(pipeline):
            return None
        return self.path / pipeline / f"{named['page']}.html"

    def page_of(self, pipeline: str, batch_id: int) -> Path:
        """The page of a batch."""
        return self.path / pipeline / f"{batch_id}.html"

    def history_of(self, pipeline: str) -> Path:
        """The history of a pipeline."""
        return self.path / pipeline / f"{HISTORY}.html"

    def read_stamp(self, pipeline: str, batch_id: int) -> str | None:
        """Return the stamp of a page, which says what it was made from; None if there is none."""
        try:
            with self.page_of(pipeline, batch_id).open(encoding="utf-8") as page:
                found = _STAMP.search(page.read(_STAMP_CHARACTERS))
        except FileNotFoundError:
            return None
        return found[1] if found else None

    def read_summary(self, pipeline: str) -> Mapping[str, Any] | None:
        """Return the summary of a pipeline; None if there is no readable one."""
        if not _PIPELINE.fullmatch(pipeline):
            return None
        try:
            found = json.loads((self.path / pipeline / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def list_summaries(self) -> Sequence[Mapping[str, Any]]:
        """Return the summaries of all pipelines, in the order of their names."""
        return [found for found in map(self.read_summary, self._list_pipelines()) if found is not None]

    def drop_others(self, pipelines: Collection[str]) -> Sequence[str]:
        """Remove the pages of all pipelines but these; return their names. Other files stay."""
        others = [name for name in self._list_pipelines() if name not in pipelines]
        for name in others:
            shutil.rmtree(self.path / name, ignore_errors=True)
        return others

    def write_summary(self, pipeline: str, summary: Mapping[str, Any]) -> None:
        """Replace the summary of a pipeline."""
        write_page(self.path / pipeline / "summary.json", json.dumps(summary))

    def prune(self, pipeline: str, oldest: int) -> int:
        """Remove the pages of batches older than ``oldest``; return how many.

        It never removes newer ones: another process may have written them meanwhile.
        """
        removed = 0
        for page in (self.path / pipeline).glob("*.html"):
            if page.stem.isdecimal() and int(page.stem) < oldest:
                page.unlink(missing_ok=True)
                removed += 1
        return removed

    def _list_pipelines(self) -> Sequence[str]:
        return sorted(each.parent.name for each in self.path.glob("*/summary.json"))


def write_page(file: Path, text: str) -> None:
    """Write a file in one step; only its owner can read it, and enter the folders that are made for it."""
    make_private_folder(file.parent)
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(draft).replace(file)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
