"""Files of watches by key: what they may say, and where a mistake is."""

from pathlib import Path

import pytest
import yaml

from batchledger.config.watch_file import KeyedSourceConfig, WatchConfig, read_watch_file
from batchledger.model.errors import FileRefusedError

SOURCE = {"topics": ["orders"], "schema": "id string, version bigint"}
OF_COORDINATES = {"key": None, "source": {"topics": ["orders"]}, "coordinates": "batchledger"}


def read(folder: Path, **keys: object) -> WatchConfig:
    """Read a file with these keys in place of others; None leaves one out."""
    content = {"watch": "orders", "source": SOURCE, "table": {"connection": "shop", "name": "orders"}, "key": ["id"]}
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**content, **keys}.items() if value is not None}))
    return read_watch_file(path)


def test_source_of_a_watch_by_key_is_one_of_a_pipeline_and_upserted_tables_delete(tmp_path: Path) -> None:
    watch = read(tmp_path)
    assert isinstance(watch.source, KeyedSourceConfig)
    assert (watch.deletes, watch.subject.split(" by ")[1]) == (False, "key id; holes transactional")
    watch = read(tmp_path, compare={"version": "version"})
    assert (watch.deletes, watch.subject.split(" by ")[1]) == (True, "key id, as new as version; holes transactional")
    assert not read(tmp_path, compare={"version": "version"}, source={**SOURCE, "tombstones": "skip"}).deletes


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"key": None}, "write one of coordinates and key"),
        ({"coordinates": "batchledger"}, "write one of coordinates and key"),
        ({"key": None, "coordinates": "batchledger"}, "source.schema: how records are decoded belongs to key"),
        ({"source": {"topics": ["orders"]}}, "source.schema: with key, the source says how records are decoded"),
        ({"source": {"topics": ["orders"], "format": "json"}}, "source.schema: this key is required"),
        ({"source": {**SOURCE, "start": "latest"}}, "start: this key is for pipelines.*write since, beside source"),
        ({"source": {**SOURCE, "protect": {"id": "hash"}}}, "protect: this key is for pipelines"),
        ({"source": {**SOURCE, "tombstones": "keep"}}, "tombstones: keep makes rows without a key"),
        ({"source": {**SOURCE, "tombstones": "delete"}}, "source.tombstones: delete is for a table with one row"),
        ({"key": ["idd"]}, "key: 'idd' is not a column of source.schema; did you mean 'id'"),
        ({**OF_COORDINATES, "compare": {"version": "version"}}, "compare: belongs to key"),
        ({"compare": {}}, "compare: write one of version and columns"),
        ({"compare": {"columns": ["versio"]}}, "compare: 'versio' is not a column"),
        ({"fingerprint": ["version"]}, "fingerprint: belongs to coordinates"),
        ({"table": {"catalog": "lake", "name": "shop.orders"}}, "table.catalog: by key, tables in PostgreSQL alone"),
        (
            {
                "source": {
                    "topics": ["orders"],
                    "schema": "n int",
                    "key": {"format": "string", "columns": "id string"},
                },
                "key": ["id", "n"],
                "compare": {"version": "n"},
            },
            "key: a tombstone has no value",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_its_place(
    tmp_path: Path, keys: dict[str, object], said: str
) -> None:
    with pytest.raises(FileRefusedError, match=said):
        read(tmp_path, **keys)
