-- A batch that waits for its run's next step is handed on to it; at any other one nobody is at work any more.
with handed_on as (
    update batchledger.presence p
    set is_handed_on = true, seen_at = clock_timestamp()
    from batchledger.batch b
    where p.batch_id = %(batch_id)s and p.holder = %(holder)s and %(has_ended_well)s
        and b.batch_id = p.batch_id and b.state not in ('published', 'blocked', 'discarded')
    returning p.batch_id
)
delete from batchledger.presence p
where p.batch_id = %(batch_id)s and p.holder = %(holder)s and not exists (select from handed_on)
