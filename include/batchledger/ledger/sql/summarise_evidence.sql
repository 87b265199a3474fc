-- Overlapping evidence of repeated task attempts counts once: range_agg is a union.
select r.topic, r.partition, lower(r.offsets), upper(r.offsets),
    coalesce((
        select sum(upper(seen) - lower(seen))::bigint
        from unnest(v.offsets * int8multirange(r.offsets)) as seen), 0),
    (select count(distinct q."offset") from {quarantine} q
     where q.topic = r.topic and q.partition = r.partition and r.offsets @> q."offset"),
    coalesce((
        select sum(upper(skipped) - lower(skipped))::bigint
        from unnest(v.tombstones * int8multirange(r.offsets)) as skipped), 0)
from batchledger.batch_range r
left join (
    select topic, partition, range_agg(offsets) as offsets, range_agg(tombstones) as tombstones
    from {visible}
    where reader is null
    group by topic, partition) v
    on v.topic = r.topic and v.partition = r.partition
where r.batch_id = %(batch_id)s
order by r.topic, r.partition, r.offsets
