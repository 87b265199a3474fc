-- What was decided about a record stands, as long as it has the same key.
insert into batchledger_judged
select r.*, true
from batchledger_recalled r
where exists (
    select from batchledger_keyed k
    where k.key_hash = r.key_hash and k._topic = r._topic and k._partition = r._partition and k._offset = r._offset)
