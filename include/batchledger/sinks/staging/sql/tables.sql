-- name: select_unrepeated
select s.*
from {staging} s
where not exists (
    select from {repeated} r
    where r._topic = s._topic and r._partition = s._partition and r._offset = s._offset)
