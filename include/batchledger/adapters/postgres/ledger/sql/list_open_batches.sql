-- One partial index a lane. Attempts are counted back to the newest one that came to a result. An attempt at work has
-- no outcome yet; it has failed if one of its steps has left an error. An attempt that has taken a batch again has no
-- result until it was judged.
with open_batch as (
    select batch_id, attempt from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and state not in ('published', 'discarded')
    union all
    select batch_id, attempt from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'replay' and state not in ('published', 'discarded') and not is_dry_run
)
select b.batch_id, j.attempt as judged_attempt, f.failures, (
        select max(ended_at) from batchledger.attempt where batch_id = b.batch_id and outcome = 'blocked'
    ) as blocked_since, exists (
        select from batchledger.decision d
        where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = j.attempt) as is_accepted, (
        select failed_step from batchledger.attempt
        where batch_id = b.batch_id and error is not null order by number desc limit 1
    ) as failed_step
from open_batch b
cross join lateral (select max(attempt) as attempt from batchledger.check_result where batch_id = b.batch_id) j
cross join lateral (
    select count(*) as failures from batchledger.attempt each
    where each.batch_id = b.batch_id and (each.outcome in ('failed', 'fenced') or each.outcome is null and each.error is not null) and each.number > coalesce((
        select max(number) from batchledger.attempt
        where batch_id = b.batch_id and outcome not in ('failed', 'fenced')), 0)) f
order by b.batch_id
