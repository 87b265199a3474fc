-- Batches that people gave up offsets with, in the present epoch; the caller compares their ranges.
select d.batch_id
from batchledger.decision d
join batchledger.pipeline p on p.name = d.pipeline
where d.pipeline = %(pipeline)s and d.kind = %(kind)s
    and exists (
        select from batchledger.batch_range r
        where r.batch_id = d.batch_id and r.epoch = p.epoch and r.published_live
            and r.topic = %(topic)s and r.partition = %(partition)s and lower(r.offsets) = %(start)s)
order by d.decision_id desc
