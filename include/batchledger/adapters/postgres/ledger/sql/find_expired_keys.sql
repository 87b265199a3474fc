select m.ctid
from batchledger.message_key m
where m.pipeline = %(pipeline)s and m.remembered_until <= %(until)s
order by m.remembered_until
limit %(limit)s
