insert into batchledger.sequence (pipeline, key_hash, key, run, seen, batch_id)
select %(pipeline)s, key_hash, key, last_run, before + numbers, %(batch_id)s
from batchledger_series
where is_last
on conflict (pipeline, key_hash) do update
set run = excluded.run, seen = excluded.seen, batch_id = excluded.batch_id
