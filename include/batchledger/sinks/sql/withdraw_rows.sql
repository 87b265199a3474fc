-- Removes the rows that other batches wrote in the ranges of this one. One number for each piece that is replaced, in
-- their order: how many different offsets had a row.
with planned as (
    select *
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
), removed as (
    delete from {target} t
    using planned p
    where t._topic = p.topic and t._partition = p.partition and t._offset >= p.start and t._offset < p.until
        and t._batch_id <> %(batch_id)s
    returning t._batch_id, t._topic, t._partition, t._offset
)
select count(distinct r._offset)
from unnest(
    %(held_by)s::bigint[], %(held_topics)s::text[], %(held_partitions)s::int[], %(held_starts)s::bigint[],
    %(held_untils)s::bigint[]) with ordinality as piece (batch_id, topic, partition, start, until, ordinality)
left join removed r
    on r._batch_id = piece.batch_id and r._topic = piece.topic and r._partition = piece.partition
    and r._offset >= piece.start and r._offset < piece.until
group by piece.ordinality
order by piece.ordinality
