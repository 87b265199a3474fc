-- The newest audit of a pipeline stays, however old it is. What has not passed stays longer than what has.
select r.ctid
from batchledger.audit_result r
where r.pipeline = %(pipeline)s
    and r.audited_at < case when r.outcome in ('failed', 'not_run') then %(before)s else %(passed_before)s end
    and r.audited_at < (select max(audited_at) from batchledger.audit_result where pipeline = %(pipeline)s)
order by r.audited_at
limit %(limit)s
