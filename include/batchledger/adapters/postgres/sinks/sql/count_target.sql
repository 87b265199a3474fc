select t._batch_id, t._topic, t._partition, count(*), count(distinct t._offset), min(t._offset), max(t._offset)
from {target} t
group by t._batch_id, t._topic, t._partition
