-- The newest audit of a pipeline stays, however old it is.
select r.ctid
from batchledger.audit_result r
where r.pipeline = %(pipeline)s and r.audited_at < %(before)s
    and r.audited_at < (select max(audited_at) from batchledger.audit_result where pipeline = %(pipeline)s)
order by r.audited_at
limit %(limit)s
