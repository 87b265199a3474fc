-- The rows whose key was first seen at other coordinates, with these: by the key that is remembered, else by the first
-- of them in the batch.
insert into batchledger_repeated
with again as materialized (
    select _topic, _partition, _offset, {key_hash} as key_hash
    from {staging}
    where ({key}) is not null and {short_hash} in (select short_hash from batchledger_again)
), first_here as (
    select distinct on (key_hash) key_hash, _topic, _partition, _offset
    from again
    order by key_hash, _topic collate "C", _partition, _offset
), judged as (
    select _topic, _partition, _offset, first_topic, first_partition, first_offset
    from batchledger_known
    union all
    select a._topic, a._partition, a._offset, f._topic, f._partition, f._offset
    from again a
    join first_here f using (key_hash)
    where not exists (select from batchledger_known k where k.key_hash = a.key_hash)
)
select *, false
from judged
where (_topic, _partition, _offset) <> (first_topic, first_partition, first_offset)
