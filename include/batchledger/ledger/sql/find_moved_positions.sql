select r.topic, r.partition, lower(r.offsets), p.next_offset
from batchledger.batch_range r
left join batchledger.position p
    on p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition
where r.batch_id = %(batch_id)s and p.next_offset is distinct from lower(r.offsets)
order by r.topic, r.partition
