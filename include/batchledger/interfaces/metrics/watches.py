"""What the newest looks at watched tables have found, as metric families. Pure.

A label holds the name of a watch, or a word of a closed list.
"""

from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from batchledger.watching.history import LookSummary


def build_watch_families(looks: Mapping[str, LookSummary]) -> list[Metric]:
    """Return the newest look of each watch; one that has never looked has no sample."""
    outcome = GaugeMetricFamily(
        "batchledger_watch_outcome", "1 for what the newest look says of a table.", labels=("watch", "outcome")
    )
    offsets = GaugeMetricFamily("batchledger_watch_offsets", "Offsets that are due for a proof.", labels=("watch",))
    proved = GaugeMetricFamily("batchledger_watch_proved_offsets", "Offsets that are proved.", labels=("watch",))
    found = GaugeMetricFamily(
        "batchledger_watch_found",
        "Offsets that are not proved, by what was found; a difference without any has no sample.",
        labels=("watch", "difference"),
    )
    looked = GaugeMetricFamily(
        "batchledger_watch_look_timestamp_seconds",
        "When the newest look has begun, in Unix time.",
        labels=("watch",),
        unit="seconds",
    )
    for watch, look in looks.items():
        outcome.add_metric((watch, look.outcome), 1)
        offsets.add_metric((watch,), look.offsets)
        proved.add_metric((watch,), look.proved)
        for difference, count in look.found.items():
            found.add_metric((watch, difference), count)
        looked.add_metric((watch,), look.looked_at.timestamp())
    return [outcome, offsets, proved, found, looked]
