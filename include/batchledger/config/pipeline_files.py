"""All pipeline files, for those that look at them again and again: only a changed file is read again."""

from dataclasses import dataclass, field
from pathlib import Path

from batchledger.config.pipeline_file import PipelineConfig, find_pipeline_files, name_in_airflow, read_pipeline_file
from batchledger.model.errors import BatchledgerError


@dataclass
class PipelineFiles:
    """What was read of the files, with the time of their last change in nanoseconds."""

    _known: dict[Path, tuple[int, PipelineConfig | str]] = field(default_factory=dict)

    def read(self) -> tuple[list[PipelineConfig], dict[str, str]]:
        """Return the pipelines, and the errors of refused files by the id of their DAG."""
        self._known = {path: self._read_file(path) for path in find_pipeline_files()}
        configs = [found for _, found in self._known.values() if isinstance(found, PipelineConfig)]
        refused = {name_in_airflow(path): found for path, (_, found) in self._known.items() if isinstance(found, str)}
        return configs, refused

    def _read_file(self, path: Path) -> tuple[int, PipelineConfig | str]:
        try:
            changed_ns = path.stat().st_mtime_ns
            known = self._known.get(path)
            return known if known and known[0] == changed_ns else (changed_ns, read_pipeline_file(path))
        except (OSError, BatchledgerError) as error:
            return 0, str(error)
