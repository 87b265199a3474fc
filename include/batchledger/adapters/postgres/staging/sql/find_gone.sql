-- First records that were accepted before and are not read any more, or with another key.
insert into batchledger_gone
select %(pipeline)s, r.key_hash, r._topic, r._partition, r._offset
from batchledger_recalled r
where not r.is_duplicate and not exists (
    select from batchledger_judged j
    where j.key_hash = r.key_hash and j._topic = r._topic and j._partition = r._partition and j._offset = r._offset)
