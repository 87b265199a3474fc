-- Ranges that no audit has accounted for are left out. Before classes were stored, holes counted as one.
select topic, partition, lower(offsets), upper(offsets), accepted, duplicates, quarantined, tombstones, filtered,
    coalesce(aborted, holes), coalesce(markers, 0), coalesce(compacted, 0), accepted_loss
from batchledger.batch_range
where batch_id = %(batch_id)s and accepted is not null
order by topic, partition, offsets
