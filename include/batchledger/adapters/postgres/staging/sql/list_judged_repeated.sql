insert into batchledger_repeated
select _topic, _partition, _offset, first_topic, first_partition, first_offset, is_settled
from batchledger_judged
where is_duplicate
