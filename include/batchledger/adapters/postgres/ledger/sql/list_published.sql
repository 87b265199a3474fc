-- Every range that was ever published, or those of the batches that are asked for, with what later batches have replaced
-- and removed of it.
select r.batch_id, r.topic, r.partition, lower(r.offsets), upper(r.offsets), r.accepted, r.quarantined, r.unexplained,
    b.rows_published_at is not null, r.duplicates, r.accepted_loss, b.lane, r.epoch,
    int8multirange(r.offsets) - r.held, removed.rows, coalesce(removed.quarantined, 0) + r.quarantine_dropped,
    removed.duplicates
from batchledger.batch_range r
join batchledger.batch b on b.batch_id = r.batch_id
left join lateral (
    select sum(p.rows)::bigint as rows, sum(p.quarantined)::bigint as quarantined,
        sum(p.duplicates)::bigint as duplicates
    from batchledger.replacement p
    where r.held <> int8multirange(r.offsets)
        and p.replaced_batch_id = r.batch_id and p.topic = r.topic and p.partition = r.partition
        and p.offsets <@ r.offsets) removed on true
where r.pipeline = %(pipeline)s and b.state = 'published'
    and (%(asked)s::bigint[] is null or r.batch_id = any(%(asked)s))
order by r.topic, r.partition, r.offsets, r.batch_id
