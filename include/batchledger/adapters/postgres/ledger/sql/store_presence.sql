insert into batchledger.presence (batch_id, run, worker, holder)
values (%(batch_id)s, %(run)s, %(worker)s, %(holder)s)
on conflict (batch_id) do update
set run = excluded.run, worker = excluded.worker, holder = excluded.holder, is_handed_on = false,
    since = clock_timestamp(), seen_at = clock_timestamp()
