-- One look into the index a pipeline. Dry runs change nothing, so they are no news.
select name as pipeline, b.batch_id, b.state, b.planned_at, b.published_at
from unnest(%s::text[]) name
cross join lateral (
    select batch_id, state, planned_at, published_at
    from batchledger.batch where pipeline = name and not is_dry_run order by batch_id desc limit 1) b
