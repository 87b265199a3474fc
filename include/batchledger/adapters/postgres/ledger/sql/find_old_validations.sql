-- "offset" without a limit: the batch behind the newest ones, none when there are no more than these.
select c.ctid
from batchledger.check_result c
where c.validation is not null and c.batch_id in (
    select b.batch_id from batchledger.batch b
    where b.pipeline = %(pipeline)s and b.batch_id <= (
        select o.batch_id from batchledger.batch o
        where o.pipeline = %(pipeline)s order by o.batch_id desc offset %(kept)s limit 1))
limit %(limit)s
