-- name: find_strangers
-- Rows at or behind the positions that no batch of the ledger has written there, by partition. The positions are the
-- ones before the batch. The ledger does not know a partition without a position. A lost batch may have had the
-- number of a batch that was planned since.
with known as (
    select p.topic, p.partition, least(p.next_offset, own.start) as next_offset
    from batchledger.position p
    left join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[]) as own (topic, partition, start)
        on own.topic = p.topic and own.partition = p.partition
    where p.pipeline = %(pipeline)s
)
select t._topic, t._partition, min(t._offset), max(t._offset) + 1, count(*)
from {target} t
left join known k on k.topic = t._topic and k.partition = t._partition
where t._offset >= coalesce(k.next_offset, 0)
    and not exists (
        select from batchledger.batch_range r
        join batchledger.batch b on b.batch_id = r.batch_id and b.rows_published_at is not null
        where r.batch_id = {holder} and r.pipeline = %(pipeline)s
            and r.topic = t._topic and r.partition = t._partition and r.offsets @> t._offset
    )
group by t._topic, t._partition
order by t._topic, t._partition
