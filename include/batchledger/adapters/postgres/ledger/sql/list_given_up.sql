-- Accepted losses and skips are batches of their own; what a replay has published of them is not lost any more.
select r.topic, r.partition, lower(piece), upper(piece)
from batchledger.decision d
join batchledger.batch_range r on r.batch_id = d.batch_id and r.accepted_loss > 0
cross join lateral unnest(r.held) as piece
where d.pipeline = %(pipeline)s and d.kind in ('accept-loss', 'skip')
