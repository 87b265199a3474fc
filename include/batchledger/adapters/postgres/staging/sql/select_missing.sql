select a.*
from {accepted} a
where not exists (
    select from batchledger_held h
    where h._topic = a._topic and h._partition = a._partition and h._offset = a._offset)
