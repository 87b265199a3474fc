select b.batch_id, b.pipeline, b.lane, b.state, b.attempt, a.run, b.lag_left_records, b.planned_at, b.delivery,
    b.origin, b.is_dry_run, b.announced_ends
from batchledger.batch b
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where b.batch_id = %(batch_id)s
   or (b.pipeline = %(pipeline)s and b.request_key = %(key)s)
   or (b.pipeline = %(pipeline)s and %(key)s::text is null and b.lane = 'live'
       and b.state not in ('published', 'discarded'))
