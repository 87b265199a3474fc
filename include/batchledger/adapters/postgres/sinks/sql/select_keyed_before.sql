-- What the ranges give up, and what lies elsewhere and is older than the newest record of its key.
select {columns}, true as is_there
from {target} t
join planned p
    on p.topic = t._topic and p.partition = t._partition and t._offset >= p.start and t._offset < p.until
union all
select {columns}, true
from {elsewhere} t
join batchledger_last l on {same_key}
where {version_of_target} <= {version_of_last}
