"""What ``batchledger verify`` shows: how much was proved, or every finding."""

import dataclasses
from collections.abc import Iterator

from rich.text import Text

from batchledger.interfaces.cli.printing import Part, Shown, new_table
from batchledger.model.batch import DeliveryMode
from batchledger.model.counting import describe_count
from batchledger.model.records.rules import SinkMode
from batchledger.proof.verification import Verification

CHAIN_END_SHOWN = 16
"""So many hexadecimal digits tell two chains apart."""


def describe_verification(verification: Verification, delivery: DeliveryMode | None) -> Shown:
    """Show what was proved, or every finding. ``delivery`` is None if the pipeline file is gone."""
    document = {**dataclasses.asdict(verification), "delivery": delivery, "holds": verification.holds}
    # Only a sentence uses these; scripts rely on the other keys.
    del document["taken_over"], document["quarantine_dropped"], document["rows_erased"]
    if verification.not_compared:
        # Only the file says it, and it may be gone.
        document["mode"] = None
    else:
        del document["not_compared"]
    parts = list(_verification_parts(verification, delivery))
    return Shown(document, parts, exit_code=0 if verification.holds else 1)


def _describe_size(found: Verification) -> str:
    """Say how much was proved, and what became of the offsets that have no row."""
    size = (
        f"{describe_count(found.batches, 'batch', 'batches')}, {describe_count(found.ranges, 'range')}, "
        f"{describe_count(found.offsets, 'offset')}, "
    )
    size += "" if found.not_compared else f"{describe_count(found.rows, 'row')}, "
    size += f"{found.quarantined:,} quarantined"
    if found.quarantine_dropped:
        size += f", {found.quarantine_dropped:,} dropped from quarantine"
    if found.rows_erased:
        size += f", {found.rows_erased:,} erased"
    if found.accepted_loss:
        size += f", {found.accepted_loss:,} accepted as lost"
    if not found.not_compared and found.mode is SinkMode.APPEND and (without := found.offsets_without_row) > 0:
        size += f", {without:,} without a row (holes, tombstones, duplicates, filtered)"
    return size


def _verification_parts(found: Verification, delivery: DeliveryMode | None) -> Iterator[Part]:
    if not found.batches and found.holds:
        yield f"[yellow]{found.pipeline} has published nothing yet[/]: there is nothing to prove."
        return
    size = _describe_size(found)
    if found.holds:
        yield f"[green]{found.pipeline} is exact[/]: {size}."
        yield "Contiguous (I1), disjoint (I2), balanced (I7), each offset held once (I8);"
        yield f"{found.proved_of_target}."
        if found.decisions:
            stand = describe_count(found.decisions, "decision stands as it was", "decisions stand as they were")
            yield f"{stand} recorded; the chain ends in {found.chain_end[:CHAIN_END_SHOWN]}."
        if found.incomplete_until:
            yield (
                f"Not proved: that no record of batches up to {found.incomplete_until} is missing, nor of any replay; "
                "the topic removes records by its own retention or compaction."
            )
        return
    if delivery not in (None, DeliveryMode.EXACTLY_ONCE):
        anomaly = "repeat rows" if delivery is DeliveryMode.AT_LEAST_ONCE else "lose rows"
        yield f"[yellow]delivery: {delivery}[/] allows a crash to {anomaly}; only exactly_once promises neither."
    findings = describe_count(len(found.findings), "finding")
    table = new_table(f"{found.pipeline}: {findings} in {size}", "breaks", "where", "finding")
    for finding in found.findings:
        table.add_row(Text(finding.invariant, "bold red"), Text(finding.where), Text(finding.detail))
    yield table
