select b.batch_id, b.lane, b.state, b.attempt, b.planned_by, b.planned_at, b.published_at, b.published_rows,
    extract(epoch from b.published_at - b.planned_at)::float8,
    r.ranges, r.offsets, r.quarantined, b.is_dry_run
from batchledger.batch b
cross join lateral (
    select count(*) as ranges, coalesce(sum(upper(offsets) - lower(offsets)), 0)::bigint as offsets,
        coalesce(sum(quarantined), 0)::bigint as quarantined
    from batchledger.batch_range where batch_id = b.batch_id) r
where b.pipeline = %(pipeline)s and (%(before)s::bigint is null or b.batch_id < %(before)s)
order by b.batch_id desc
limit %(limit)s
