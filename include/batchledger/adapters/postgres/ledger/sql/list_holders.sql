-- The limit is inside, so that nobody sorts what is too much to be shown.
select r.batch_id, lower(piece), upper(piece)
from (
    select batch_id, held * int8multirange(int8range(%(start)s, %(until)s)) as mine
    from batchledger.batch_range
    where pipeline = %(pipeline)s and topic = %(topic)s and partition = %(partition)s
        and held && int8multirange(int8range(%(start)s, %(until)s)) and not isempty(held)
    limit %(limit)s) r
cross join lateral unnest(r.mine) as piece
order by 2
