-- The kinds of error, how many records have each, and where the first one lies. Records that a repeated task attempt has
-- set aside once more count once.
select distinct on (error)
    error, count(*) over (partition by error), topic, partition, "offset"
from (select distinct error, topic, partition, "offset" from {quarantine}) q
order by error, topic, partition, "offset"
