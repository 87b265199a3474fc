-- A row that is there more than once meets one new row.
select {columns}, true as is_there,
    row_number() over (partition by t._topic, t._partition, t._offset order by t.ctid) as copy
from {target} t
join planned p
    on p.topic = t._topic and p.partition = t._partition and t._offset >= p.start and t._offset < p.until
