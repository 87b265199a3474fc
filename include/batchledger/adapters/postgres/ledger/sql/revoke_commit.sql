update batchledger.batch b
set state = 'audited'
from batchledger.attempt a
where b.batch_id = %(batch_id)s and b.attempt = %(attempt)s and b.state = 'committing'
    and a.batch_id = b.batch_id and a.number = b.attempt and a.run = %(run)s
