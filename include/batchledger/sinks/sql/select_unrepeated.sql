select s.*
from {staging} s
where not exists (
    select from ({duplicates}) d
    where d._topic = s._topic and d._partition = s._partition and d._offset = s._offset)
