-- Before remember_keys: what is remembered of this batch by now was committed by an earlier attempt, with its rows.
create temporary table batchledger_held on commit drop as
with keyed as materialized (
    {keyed}
)
select k._topic, k._partition, k._offset
from keyed k
join batchledger.message_key m on m.pipeline = k.pipeline and m.key_hash = k.key_hash
where m.batch_id = {batch_id} and (m.topic, m.partition, m."offset") = (k._topic, k._partition, k._offset)
