-- One look into the index a pipeline.
select name as pipeline, b.batch_id, b.state, b.planned_at, b.published_at
from unnest(%s::text[]) name
cross join lateral (
    select batch_id, state, planned_at, published_at
    from batchledger.batch where pipeline = name order by batch_id desc limit 1) b
