-- The compare-and-swap of I1 and I3: only a partition that stands at the start of its range moves.
update batchledger.position p
set next_offset = upper(r.offsets), updated_at = now()
from batchledger.batch_range r
where r.batch_id = %(batch_id)s
    and p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition
    and p.next_offset = lower(r.offsets)
