-- name: count_added
-- How many rows are added, and how many were staged.
select (select count(*) from {added}), (select count(*) from {staged} s where {is_row})

-- name: find_left_out
-- The staged rows that are not added: duplicates, rows that are there already, rows that a later record of the key
-- replaces, and rows that a check has set aside.
select s._topic, s._partition, s._offset
from {staged} s
where {is_row} and not exists (
    select from {added} a
    where a._topic = s._topic and a._partition = s._partition and a._offset = s._offset)
