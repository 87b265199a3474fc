with numbered as (
    select n._topic, n._partition, n._offset, s.before, number,
        row_number() over (
            partition by {keys}, run, number order by n._topic collate "C", n._partition, n._offset) as copy
    from batchledger_number n
    join batchledger_series s using ({keys}, run)
    where n.is_kept
)
select _topic, _partition, _offset, number
from numbered
where copy > 1 or number <@ before
order by _topic collate "C", _partition, _offset
limit %(limit)s
