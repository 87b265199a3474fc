-- First records that were accepted before and are not read any more, or with another key. Nothing later is a duplicate
-- of them; what was listed as one is judged anew when its own range is published again.
with gone as materialized (
    select r.key_hash, r._topic, r._partition, r._offset
    from batchledger_recalled r
    where not r.is_duplicate and not exists (
        select from batchledger_judged j
        where j.key_hash = r.key_hash and j._topic = r._topic and j._partition = r._partition and j._offset = r._offset)
), forgotten as (
    delete from batchledger.message_key m
    using gone g
    where m.pipeline = %(pipeline)s and m.key_hash = g.key_hash
        and m.topic = g._topic and m.partition = g._partition and m."offset" = g._offset
)
update batchledger.duplicate d
set key_hash = null
from gone g
where d.pipeline = %(pipeline)s and d.key_hash = g.key_hash
    and d.first_topic = g._topic and d.first_partition = g._partition and d.first_offset = g._offset
