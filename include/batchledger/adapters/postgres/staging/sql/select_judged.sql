select s.*
from {staging} s
where not exists (
    select from batchledger_judged j
    where j.is_duplicate and j._topic = s._topic and j._partition = s._partition and j._offset = s._offset)
