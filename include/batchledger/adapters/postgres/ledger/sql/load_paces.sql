-- The newest batches are taken by an index before anything is joined, so a long history costs nothing. One that a person
-- has accepted has waited for that.
select r.offsets, extract(epoch from b.published_at - a.opened_at)::float8
from (
    select batch_id, attempt, published_at
    from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and published_at is not null
    order by published_at desc
    limit %(limit)s) b
join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
cross join lateral (
    select sum(upper(offsets) - lower(offsets))::bigint as offsets
    from batchledger.batch_range where batch_id = b.batch_id) r
where b.published_at > a.opened_at
    and not exists (select from batchledger.decision d where d.batch_id = b.batch_id and d.kind = 'accept')
order by b.published_at desc
