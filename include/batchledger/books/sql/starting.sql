-- name: list_start_facts
-- One line for each of these pipelines, with its positions as arrays of one order.
select wanted.name, coalesce(p.pause_id is not null, false), b.batch_id, b.state,
    (select extract(epoch from now() - max(published_at))::float8 from batchledger.batch
        where pipeline = wanted.name and lane = 'live'),
    at.topics, at.partitions, at.offsets
from unnest(%s::text[]) as wanted (name)
left join batchledger.pipeline p on p.name = wanted.name
left join batchledger.batch b
    on b.pipeline = wanted.name and b.lane = 'live' and b.state not in ('published', 'discarded')
cross join lateral (
    select coalesce(array_agg(topic), '{}') as topics, coalesce(array_agg(partition), '{}') as partitions,
        coalesce(array_agg(next_offset), '{}') as offsets
    from batchledger.position where pipeline = wanted.name) at
