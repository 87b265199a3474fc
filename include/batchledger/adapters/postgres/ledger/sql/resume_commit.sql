with taken as (
    update batchledger.batch
    set state = state
    where batch_id = %(batch_id)s and state = 'committing'
    returning batch_id, attempt
)
update batchledger.attempt a
set run = %(run)s
from taken
where a.batch_id = taken.batch_id and a.number = taken.attempt
