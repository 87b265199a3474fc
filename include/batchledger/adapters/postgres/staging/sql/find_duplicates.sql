select _topic, _partition, _offset
from {staging}
group by _topic, _partition, _offset
having count(*) > 1
order by _topic, _partition, _offset
limit %(limit)s
