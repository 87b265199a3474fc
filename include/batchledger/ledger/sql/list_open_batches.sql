-- One partial index a lane. Attempts are counted back to the newest one that came to a result; one that is at work has
-- no outcome yet.
with open_batch as (
    select batch_id, attempt, state from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and state not in ('published', 'discarded')
    union all
    select batch_id, attempt, state from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'replay' and state not in ('published', 'discarded') and not is_dry_run
)
select b.batch_id, f.failures, case when b.state = 'blocked' then a.ended_at end
from open_batch b
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
cross join lateral (
    select count(*) as failures from batchledger.attempt each
    where each.batch_id = b.batch_id and each.outcome in ('failed', 'fenced') and each.number > coalesce((
        select max(number) from batchledger.attempt
        where batch_id = b.batch_id and outcome not in ('failed', 'fenced')), 0)) f
order by b.batch_id
