-- Those that were not listed before.
select _topic, _partition, _offset, first_topic, first_partition, first_offset
from batchledger_repeated
where not is_settled
order by _topic, _partition, _offset
limit %(limit)s
