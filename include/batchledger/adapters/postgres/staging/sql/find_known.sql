-- The rows whose key is remembered, each with the record that came first. "offset 0" keeps PostgreSQL from comparing the
-- pipeline with a constant (see select_keyed), at no cost: the hashes are made as the rows are joined, and not stored.
create temporary table batchledger_known on commit drop as
select k.key_hash, k._topic, k._partition, k._offset,
    m.topic as first_topic, m.partition as first_partition, m."offset" as first_offset
from ({keyed} offset 0) k
join batchledger.message_key m
    on m.pipeline = k.pipeline and m.key_hash = k.key_hash and m.remembered_until > %(planned_at)s
