-- Only what was not settled before is new; in the place of a key that is forgotten, or of itself for as long as before.
insert into batchledger.message_key as m
    (pipeline, key_hash, topic, partition, "offset", batch_id, remembered_until)
select distinct
    %(pipeline)s, key_hash, _topic, _partition, _offset, %(batch_id)s, %(planned_at)s::timestamptz + %(remember)s
from batchledger_judged
where not is_settled and not is_duplicate
on conflict (pipeline, key_hash) do update
set topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset", batch_id = excluded.batch_id,
    remembered_until = case
        when (m.topic, m.partition, m."offset") = (excluded.topic, excluded.partition, excluded."offset")
        then m.remembered_until else excluded.remembered_until end
