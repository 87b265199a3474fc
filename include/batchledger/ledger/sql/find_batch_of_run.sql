-- A run may have planned one batch and taken up another: the newest counts.
select b.batch_id
from (
    select batch_id, planned_by from batchledger.batch
    where pipeline = %(pipeline)s order by batch_id desc limit %(limit)s) b
where b.planned_by = %(run)s
    or exists (select from batchledger.attempt a where a.batch_id = b.batch_id and a.run = %(run)s)
order by b.batch_id desc
limit 1
