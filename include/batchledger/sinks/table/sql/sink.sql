-- name: count_held
-- One number for each piece, in their order: how many rows of that batch, or of its span, are there.
select count(t._offset)
from unnest(
    %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as piece (batch_id, topic, partition, start, until, ordinality)
left join {target} t
    on {holder} = {asked} and t._topic = piece.topic and t._partition = piece.partition
    and t._offset >= piece.start and t._offset < piece.until
group by piece.ordinality
order by piece.ordinality

-- name: count_target_within
-- All rows at these offsets, of any writer; the ranges do not overlap. The bounds around all of them say nothing new.
-- They lead PostgreSQL to the index of the offsets: without them it would read the whole table.
select {holder}, t._topic, t._partition, count(*), count(distinct t._offset), min(t._offset), max(t._offset)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as looked_at (topic, partition, start, until)
join {target} t
    on t._topic = looked_at.topic and t._partition = looked_at.partition
    and t._offset >= looked_at.start and t._offset < looked_at.until
where t._partition = any(%(partitions)s::int[]) and t._offset >= %(first)s and t._offset < %(last)s
group by 1, t._topic, t._partition

-- name: count_target
select {holder}, t._topic, t._partition, count(*), count(distinct t._offset), min(t._offset), max(t._offset)
from {target} t
group by 1, t._topic, t._partition

-- name: count_keyed_target
select {holder}, t._topic, t._partition, count(*), count(distinct t._offset), min(t._offset), max(t._offset),
    count(*) filter (where t.copies > 1)
from (select *, count(*) over (partition by {key}) as copies from {target}) t
group by 1, t._topic, t._partition
