-- Which keys may come more than once in the batch, by a hash of 64 bits: made and grouped in a fifth of the time that
-- the exact one takes, which only these rows need.
create temporary table batchledger_again on commit drop as
select {short_hash} as short_hash
from {staging}
where ({key}) is not null
group by 1
having count(*) > 1
