-- Every range that was ever published, with what later batches have replaced and removed of it.
with removed as (
    select r.batch_id, r.topic, r.partition, r.offsets,
        sum(p.rows)::bigint as rows, sum(p.quarantined)::bigint as quarantined, sum(p.duplicates)::bigint as duplicates
    from batchledger.replacement p
    join batchledger.batch_range r
        on r.batch_id = p.replaced_batch_id and r.topic = p.topic and r.partition = p.partition and r.offsets @> p.offsets
    where r.pipeline = %(pipeline)s
    group by r.batch_id, r.topic, r.partition, r.offsets
)
select r.batch_id, r.topic, r.partition, lower(r.offsets), upper(r.offsets), r.accepted, r.quarantined, r.unexplained,
    b.rows_published_at is not null, r.duplicates, r.accepted_loss, b.lane, r.epoch,
    int8multirange(r.offsets) - r.held, x.rows,
    coalesce(x.quarantined, 0) + r.quarantine_dropped, x.duplicates
from batchledger.batch_range r
join batchledger.batch b on b.batch_id = r.batch_id
left join removed x
    on x.batch_id = r.batch_id and x.topic = r.topic and x.partition = r.partition and x.offsets = r.offsets
where r.pipeline = %(pipeline)s and b.state = 'published'
order by r.topic, r.partition, r.offsets, r.batch_id
