-- name: find_times
-- The offsets of published batches that may have records of a span of time, with what is known of their times. These
-- are ranges whose times meet the span, ranges without noted times, ranges with records without a timestamp, and all
-- held offsets within the named ranges. Each kind is found by an index of its own.
with found as (
    select batch_id, topic, partition, offsets
    from batchledger.batch_range
    where pipeline = %(pipeline)s and not isempty(held) and timestamps && int8range(%(since_ms)s, %(until_ms)s)
    union
    select batch_id, topic, partition, offsets
    from batchledger.batch_range
    where pipeline = %(pipeline)s and not isempty(held) and timestamps is null
        and accepted + duplicates + quarantined > 0
    union
    select batch_id, topic, partition, offsets
    from batchledger.batch_range
    where pipeline = %(pipeline)s and not isempty(held) and untimed > 0
    union
    select r.batch_id, r.topic, r.partition, r.offsets
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as named (topic, partition, start, until)
    join batchledger.batch_range r
        on r.pipeline = %(pipeline)s and r.topic = named.topic and r.partition = named.partition
        and r.held && int8multirange(int8range(named.start, named.until)) and not isempty(r.held)
)
select r.topic, r.partition, lower(piece), upper(piece), lower(r.offsets), upper(r.offsets),
    lower(r.timestamps), upper(r.timestamps) - 1, r.untimed,
    coalesce(r.accepted + r.duplicates + r.quarantined, 0), coalesce(r.tombstones + r.filtered, 0)
from found
join batchledger.batch_range r using (batch_id, topic, partition, offsets)
cross join lateral unnest(r.held) as piece
order by r.topic, r.partition, piece

-- name: note_times
-- Notes what a search has found about ranges that were published without times.
update batchledger.batch_range r
set timestamps = case when b.first_ms is null then 'empty' else int8range(b.first_ms, b.last_ms, '[]') end,
    untimed = b.untimed
from unnest(
    %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[],
    %(first_ms)s::bigint[], %(last_ms)s::bigint[], %(untimed)s::bigint[]
) as b (topic, partition, start, until, first_ms, last_ms, untimed)
where r.pipeline = %(pipeline)s and r.topic = b.topic and r.partition = b.partition
    and r.offsets = int8range(b.start, b.until) and not isempty(r.held) and r.timestamps is null
