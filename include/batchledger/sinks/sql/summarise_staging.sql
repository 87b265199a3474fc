-- One pass: every row meets its range; a row that meets none is counted as outside. Ordinality keeps the batch's order.
with planned as (
    select ordinality, topic, partition, start, until
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        with ordinality as p (topic, partition, start, until, ordinality)
), per_range as (
    select p.ordinality, count(*) as row_count, count(distinct s._offset) as distinct_offsets
    from {staging} s
    left join planned p
        on p.topic = s._topic and p.partition = s._partition and s._offset >= p.start and s._offset < p.until
    group by p.ordinality
)
select coalesce(r.row_count, 0), coalesce(r.distinct_offsets, 0),
    case when p.ordinality = 1
        then coalesce((select row_count from per_range where ordinality is null), 0) else 0 end
from planned p
left join per_range r using (ordinality)
order by p.ordinality
