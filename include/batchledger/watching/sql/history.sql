-- name: list_unreachable
select pipeline, opened_at from batchledger.incident
where pipeline = any(%s) and kind = 'unreachable' and ended_at is null

-- name: load_summaries
select w.watch, l.document - '{partitions,found,holes,notes}'::text[],
    (
        select coalesce(jsonb_object_agg(f.difference, f.count), '{}')
        from (
            select x ->> 'difference' as difference, sum((x ->> 'count')::bigint) as count
            from jsonb_array_elements(l.document -> 'found') x
            group by 1
        ) f
    )
from unnest(%(watches)s::text[]) w (watch)
cross join lateral (
    select look_id, document from batchledger.watch_look k where k.watch = w.watch order by look_id desc limit %(limit)s
) l
order by l.look_id desc
