select r.topic, r.partition, p.next_offset
from batchledger.batch_range r
left join batchledger.position p
    on p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition
where r.batch_id = %(batch_id)s
