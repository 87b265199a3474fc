-- name: load_figures
select b.batch_id, b.lane, b.state, b.attempt, b.is_dry_run, b.planned_by, b.planned_at, b.published_at,
    extract(epoch from b.published_at - b.planned_at)::float8 as seconds,
    r.offsets, r.accepted, r.duplicates, r.quarantined, r.tombstones, r.filtered, r.holes, r.accepted_loss,
    r.unexplained,
    c.missing_numbers, c.passed, c.failed, c.not_run, c.empty, coalesce(c.failing, '{}') as failing,
    t.runs, t.attempts_ended,
    (select count(*) from batchledger.decision where batch_id = b.batch_id) as decisions,
    (select count(*) from batchledger.replacement where replaced_batch_id = b.batch_id) as taken_over
from (
    select * from batchledger.batch where pipeline = %(pipeline)s order by batch_id desc limit %(limit)s) b
cross join lateral (
    select coalesce(sum(upper(offsets) - lower(offsets)), 0)::bigint as offsets,
        sum(accepted)::bigint as accepted, sum(duplicates)::bigint as duplicates,
        sum(quarantined)::bigint as quarantined, sum(tombstones)::bigint as tombstones,
        sum(filtered)::bigint as filtered, sum(holes)::bigint as holes, sum(accepted_loss)::bigint as accepted_loss,
        sum(unexplained)::bigint as unexplained
    from batchledger.batch_range where batch_id = b.batch_id) r
cross join lateral (
    select count(*) filter (where outcome = 'passed') as passed, count(*) filter (where outcome = 'failed') as failed,
        count(*) filter (where outcome = 'not_run') as not_run, count(*) filter (where outcome = 'empty') as empty,
        array_agg(name order by name) filter (where outcome in ('failed', 'not_run')) as failing,
        sum((observed ->> 'total')::bigint) filter (where name = 'no_missing_numbers')::bigint as missing_numbers
    from batchledger.check_result
    where batch_id = b.batch_id
        and attempt = (select max(attempt) from batchledger.check_result where batch_id = b.batch_id)) c
cross join lateral (
    select coalesce(array_agg(run order by number), '{}') as runs, count(ended_at) as attempts_ended
    from batchledger.attempt where batch_id = b.batch_id) t
order by b.batch_id
