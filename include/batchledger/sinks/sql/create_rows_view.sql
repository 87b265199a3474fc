create temporary view {view} as
select {columns}
from {staging} s
where {is_row} and not exists (
    select from {repeated} r where r._topic = s._topic and r._partition = s._partition and r._offset = s._offset)
