-- What was listed as a duplicate of a record that is gone is judged anew when its own range is published again.
update batchledger.duplicate d
set key_hash = null
from batchledger_gone g
where d.pipeline = g.pipeline and d.key_hash = g.key_hash
    and d.first_topic = g._topic and d.first_partition = g._partition and d.first_offset = g._offset
