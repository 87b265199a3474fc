select t._batch_id, t._topic, t._partition, count(*), count(distinct t._offset), min(t._offset), max(t._offset),
    count(*) filter (where t.copies > 1)
from (select *, count(*) over (partition by {key}) as copies from {target}) t
group by t._batch_id, t._topic, t._partition
