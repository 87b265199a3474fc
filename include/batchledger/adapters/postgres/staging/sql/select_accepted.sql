select s.*
from {staging} s
where not exists (
    select from batchledger.duplicate d
    where d.batch_id = {batch_id} and d.topic = s._topic and d.partition = s._partition and d."offset" = s._offset)
