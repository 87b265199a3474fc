-- Times that were not looked at stay as they are: an audit may have noted them before.
update batchledger.batch_range r
set accepted = b.accepted, duplicates = b.duplicates, quarantined = b.quarantined, tombstones = b.tombstones,
    filtered = b.filtered, aborted = b.aborted, markers = b.markers, compacted = b.compacted,
    holes = b.aborted + b.markers + b.compacted, accepted_loss = b.accepted_loss,
    timestamps = case when b.untimed is null then r.timestamps when b.first_ms is null then 'empty'
        else int8range(b.first_ms, b.last_ms, '[]') end,
    untimed = coalesce(b.untimed, r.untimed)
from unnest(
    %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[], %(accepted)s::bigint[],
    %(duplicates)s::bigint[], %(quarantined)s::bigint[], %(tombstones)s::bigint[], %(filtered)s::bigint[],
    %(aborted)s::bigint[], %(markers)s::bigint[], %(compacted)s::bigint[], %(accepted_loss)s::bigint[],
    %(first_ms)s::bigint[], %(last_ms)s::bigint[], %(untimed)s::bigint[]
) as b (
    topic, partition, start, until, accepted,
    duplicates, quarantined, tombstones, filtered,
    aborted, markers, compacted, accepted_loss,
    first_ms, last_ms, untimed)
where r.batch_id = %(batch_id)s and r.topic = b.topic and r.partition = b.partition
    and r.offsets = int8range(b.start, b.until)
