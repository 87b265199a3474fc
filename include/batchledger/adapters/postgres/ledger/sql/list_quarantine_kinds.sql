-- How many records each of these pipelines has in quarantine, of how many kinds of error, and the most frequent kinds.
select pipeline, total, kinds, error, records
from (
    select pipeline, error, records, (sum(records) over whole)::bigint as total, count(*) over whole as kinds,
        row_number() over (partition by pipeline order by records desc, error collate "C") as place
    from batchledger.quarantine_kind
    where pipeline = any(%(pipelines)s)
    window whole as (partition by pipeline)) k
where place <= %(limit)s
order by pipeline, place
