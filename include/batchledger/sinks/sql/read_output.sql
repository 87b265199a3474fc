select key, value, _topic, _partition, _offset, (extract(epoch from _timestamp) * 1000)::bigint
from {view}
order by _topic collate "C", _partition, _offset
