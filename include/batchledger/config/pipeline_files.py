"""All files of pipelines, or of watches, for those that look again and again: only a changed file is read again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from batchledger.config.pipeline_file import (
    PipelineConfig,
    find_pipeline_files,
    find_watch_files,
    name_in_airflow,
    read_pipeline_file,
)
from batchledger.config.watch_file import WatchConfig, read_watch_file
from batchledger.model.errors import BatchledgerError

Config = TypeVar("Config", PipelineConfig, WatchConfig)


@dataclass
class ConfigFiles(Generic[Config]):
    """What was read of the files that ``find`` lists, with the time of their last change in nanoseconds."""

    find: Callable[[], Sequence[Path]]
    read_file: Callable[[Path], Config]
    _known: dict[Path, tuple[int, Config | str]] = field(default_factory=dict)

    def read(self) -> tuple[list[Config], dict[str, str]]:
        """Return what the files say, and the errors of refused files by the id of their DAG."""
        self._known = {path: self._read_again(path) for path in self.find()}
        configs = [found for _, found in self._known.values() if not isinstance(found, str)]
        refused = {name_in_airflow(path): found for path, (_, found) in self._known.items() if isinstance(found, str)}
        return configs, refused

    def _read_again(self, path: Path) -> tuple[int, Config | str]:
        try:
            changed_ns = path.stat().st_mtime_ns
            known = self._known.get(path)
            return known if known and known[0] == changed_ns else (changed_ns, self.read_file(path))
        except (OSError, BatchledgerError) as error:
            return 0, str(error)


def pipeline_files() -> ConfigFiles[PipelineConfig]:
    """The files of pipelines."""
    return ConfigFiles(find_pipeline_files, read_pipeline_file)


def watch_files() -> ConfigFiles[WatchConfig]:
    """The files of watches."""
    return ConfigFiles(find_watch_files, read_watch_file)
