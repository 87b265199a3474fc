-- Rows are sorted before they become text, of which the database makes the next part while the last one is sent.
select {key}, case when {deletes} then null else convert_to({value}, 'UTF8') end,
    _topic, _partition, _offset, (extract(epoch from _timestamp) * 1000)::bigint
from (select * from {rows} order by _topic collate "C", _partition, _offset) sorted
