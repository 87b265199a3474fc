with taken as (
    update batchledger.batch
    set attempt = attempt + 1, state = 'planned', reported_rows = null
    where batch_id = %(batch_id)s and state not in ('published', 'discarded', 'committing')
    returning batch_id, attempt
), fenced as (
    update batchledger.attempt a
    set ended_at = clock_timestamp(), outcome = 'fenced'
    from taken
    where a.batch_id = taken.batch_id and a.outcome is null
)
insert into batchledger.attempt (batch_id, number, run)
select batch_id, attempt, %(run)s from taken
returning number
