-- name: find_holders
-- Offsets of this batch's ranges that published batches hold. An overlap with a live batch of the same epoch needs no
-- special care here: it is refused when the batch is published.
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from batchledger.batch_range mine
join batchledger.batch_range h
    on h.pipeline = mine.pipeline and h.topic = mine.topic and h.partition = mine.partition
    and h.held && mine.offsets and not isempty(h.held) and h.batch_id <> mine.batch_id
cross join lateral unnest(h.held * int8multirange(mine.offsets)) as piece
where mine.batch_id = %(batch_id)s

-- name: select_withdrawable
-- The rows that withdraw_rows would remove.
select t.*
from {target} t
join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as p (topic, partition, start, until)
    on t._topic = p.topic and t._partition = p.partition and t._offset >= p.start and t._offset < p.until

-- name: withdraw_rows
-- Removes the rows of the batch's ranges, of any writer; they stay known until the transaction ends.
with removed as (
    delete from {target} t
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where t._topic = p.topic and t._partition = p.partition and t._offset >= p.start and t._offset < p.until
    returning {removed}
)
insert into {table} ({columns})
select * from removed

-- name: count_withdrawn
-- One number for each piece that is replaced, in their order: how many different offsets of it had a row.
select count(distinct w._offset)
from unnest(
    %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as piece (batch_id, topic, partition, start, until, ordinality)
left join {table} w
    on {holder} = piece.batch_id and w._topic = piece.topic and w._partition = piece.partition
    and w._offset >= piece.start and w._offset < piece.until
group by piece.ordinality
order by piece.ordinality
