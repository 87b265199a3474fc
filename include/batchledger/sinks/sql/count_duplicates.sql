-- One number per range, in the batch's order.
with planned as (
    select ordinality, topic, partition, start, until
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        with ordinality as p (topic, partition, start, until, ordinality)
), duplicate as (
    {repeated}
)
select count(d._offset)
from planned p
left join duplicate d
    on d._topic = p.topic and d._partition = p.partition and d._offset >= p.start and d._offset < p.until
group by p.ordinality
order by p.ordinality
