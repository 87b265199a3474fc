select count(*), count(*) filter (where {is_row})
from {staging} s
where not exists (
    select from {repeated} r where r._topic = s._topic and r._partition = s._partition and r._offset = s._offset)
