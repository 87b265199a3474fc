-- name: hold_unheld
-- An accepted loss holds the offsets that no replay has published before.
update batchledger.batch_range mine
set published_live = true,
    held = int8multirange(mine.offsets) - coalesce((
        select range_agg(h.held) from batchledger.batch_range h
        where h.pipeline = mine.pipeline and h.topic = mine.topic and h.partition = mine.partition
            and h.held && mine.offsets and not isempty(h.held)), '{}')
where mine.batch_id = %(batch_id)s

-- name: rewind_positions
-- Named partitions go back; the others stay where they are, and the epoch starts there.
update batchledger.position p
set next_offset = coalesce(back.at, p.next_offset),
    rewound_to = coalesce(back.at, p.next_offset),
    origin_offset = least(p.origin_offset, coalesce(back.at, p.origin_offset)),
    updated_at = now()
from batchledger.position known
left join unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) as back (topic, partition, at)
    using (topic, partition)
where known.pipeline = %(pipeline)s
    and p.pipeline = known.pipeline and p.topic = known.topic and p.partition = known.partition

-- name: drop_quarantined
-- Removes records from quarantine, and notes in the balances how many a person has removed.
with dropped as (
    delete from batchledger.quarantine q
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as asked (topic, partition, start, until)
    where q.pipeline = %(pipeline)s and q.topic = asked.topic and q.partition = asked.partition
        and q."offset" >= asked.start and q."offset" < asked.until
    returning q.batch_id, q.topic, q.partition, q."offset"
), noted as (
    update batchledger.batch_range r
    set quarantine_dropped = quarantine_dropped + of_range.records
    from (
        select h.batch_id, h.topic, h.partition, h.offsets, count(*) as records
        from dropped d
        join batchledger.batch_range h
            on h.pipeline = %(pipeline)s and h.batch_id = d.batch_id and h.topic = d.topic and h.partition = d.partition
                and h.offsets @> d."offset"
        group by h.batch_id, h.topic, h.partition, h.offsets) of_range
    where r.batch_id = of_range.batch_id and r.topic = of_range.topic and r.partition = of_range.partition
        and r.offsets = of_range.offsets
)
select topic, partition, "offset" from dropped order by topic, partition, "offset"

-- name: find_given_up
-- Batches that people gave up offsets with, in the present epoch; the caller compares their ranges.
select d.batch_id
from batchledger.decision d
join batchledger.pipeline p on p.name = d.pipeline
where d.pipeline = %(pipeline)s and d.kind = %(kind)s
    and exists (
        select from batchledger.batch_range r
        where r.batch_id = d.batch_id and r.epoch = p.epoch and r.published_live
            and r.topic = %(topic)s and r.partition = %(partition)s and lower(r.offsets) = %(start)s)
order by d.decision_id desc

-- name: load_balances
-- Ranges that no audit has accounted for are left out. Before classes were stored, holes counted as one.
select topic, partition, lower(offsets), upper(offsets), accepted, duplicates, quarantined, tombstones, filtered,
    coalesce(aborted, holes), coalesce(markers, 0), coalesce(compacted, 0), accepted_loss
from batchledger.batch_range
where batch_id = %(batch_id)s and accepted is not null
order by topic, partition, offsets
