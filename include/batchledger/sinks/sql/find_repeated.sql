select _topic, _partition, _offset, first_topic, first_partition, first_offset
from ({repeated}) repeated
order by _topic, _partition, _offset
limit %(limit)s
