-- A run may have planned one batch and taken up another: the newest counts.
select max(batch_id)
from (
    select batch_id from batchledger.batch where pipeline = %(pipeline)s and planned_by = %(run)s
    union all
    select b.batch_id
    from batchledger.attempt a
    join batchledger.batch b on b.batch_id = a.batch_id and b.pipeline = %(pipeline)s
    where a.run = %(run)s) found
