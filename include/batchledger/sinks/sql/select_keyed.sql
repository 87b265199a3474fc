select _topic, _partition, _offset, {key_hash} as key_hash
from {staging}
where num_nulls({key}) = 0
