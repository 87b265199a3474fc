with numbered as (
    select n._topic, n._partition, n._offset, s.key, s.before, number,
        row_number() over (
            partition by {keys}, run, number order by n._topic collate "C", n._partition, n._offset) as copy
    from batchledger_number n
    join batchledger_series s using ({keys}, run)
)
select _topic, _partition, _offset, key, number
from numbered
where copy > 1 or number <@ before
order by _topic collate "C", _partition, _offset
limit %(limit)s
