delete from batchledger.message_key m
using batchledger_gone g
where m.pipeline = g.pipeline and m.key_hash = g.key_hash
    and m.topic = g._topic and m.partition = g._partition and m."offset" = g._offset
