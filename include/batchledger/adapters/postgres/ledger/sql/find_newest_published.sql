-- The newest batch of each lane that somebody executed, the live one first: an accepted loss is none.
(
    select b.batch_id, b.lane, b.published_at, exists (
        select from batchledger.decision d
        where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt) as is_accepted
    from batchledger.batch b
    where b.pipeline = %(pipeline)s and b.lane = 'live' and b.published_at is not null and b.attempt > 0
    order by b.published_at desc
    limit 1
) union all (
    select b.batch_id, b.lane, b.published_at, exists (
        select from batchledger.decision d
        where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt) as is_accepted
    from batchledger.batch b
    where b.pipeline = %(pipeline)s and b.lane = 'replay' and b.published_at is not null and b.attempt > 0
    order by b.published_at desc
    limit 1
)
