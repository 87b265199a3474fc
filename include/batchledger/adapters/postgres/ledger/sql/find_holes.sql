select r.topic, r.partition, lower(hole), upper(hole)
from batchledger.batch_range r
left join (select topic, partition, range_agg(offsets) as offsets from {visible} where reader is null group by topic, partition) v
    on v.topic = r.topic and v.partition = r.partition
cross join lateral unnest(int8multirange(r.offsets) - coalesce(v.offsets, int8multirange())) as hole
where r.batch_id = %(batch_id)s
order by r.topic, r.partition, hole
