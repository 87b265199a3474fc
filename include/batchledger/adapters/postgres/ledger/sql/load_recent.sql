-- The newest batches are taken by an index before anything is joined, so a long history costs nothing. What is no attempt
-- was executed by nobody (an accepted loss).
select b.batch_id, r.accepted, coalesce(c.observed, '{}')
from (
    select batch_id, attempt, published_at
    from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and published_at is not null and attempt > 0
    order by published_at desc
    limit %(limit)s) b
cross join lateral (
    select sum(accepted)::bigint as accepted from batchledger.batch_range where batch_id = b.batch_id) r
cross join lateral (
    select jsonb_object_agg(name, observed) as observed
    from batchledger.check_result
    where batch_id = b.batch_id and attempt = b.attempt and suite = 'pipeline') c
order by b.published_at desc, b.batch_id desc
