-- What was sent of them goes with them.
select i.ctid
from batchledger.incident i
where i.pipeline = %(pipeline)s and i.ended_at < %(before)s
order by i.ended_at
limit %(limit)s
