-- The gaps that the batch opens, each with the record behind it; where that one came earlier, the record before it.
with gap as (
    select {keys}, run, lower(each) as first_number, upper(each) as next_number
    from batchledger_series, unnest(missing) as each
), edge as (
    select *, next_number as number from gap
    union all
    select *, first_number - 1 from gap
), beside as (
    select distinct on ({keys}, run, e.first_number)
        n._topic, n._partition, n._offset, e.first_number, e.next_number - 1 as last_number, number
    from edge e
    join batchledger_number n using ({keys}, run, number)
    order by {keys}, run, e.first_number, number desc, n._topic collate "C", n._partition, n._offset
)
select * from beside
order by _topic collate "C", _partition, _offset, first_number
limit %(limit)s
