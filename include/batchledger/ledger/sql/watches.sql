-- name: load_watch
select subject, since, revision from batchledger.watch where watch = %s

-- name: load_starts
select topic, partition, topic_id, start_offset from batchledger.watch_start where watch = %s

-- name: load_parts
select p.topic, p.partition, k.kind, lower(r), upper(r)
from batchledger.watch_part p
    cross join lateral (values
        ('proved', p.proved), ('held', p.held), ('lacking', p.lacking), ('surplus', p.surplus)
    ) as k (kind, ranges)
    cross join lateral unnest(k.ranges) r
where p.watch = %s

-- name: load_ends_before
select p ->> 'partition', (p ->> 'end')::bigint
from jsonb_array_elements((
    select document -> 'partitions' from batchledger.watch_look
    where watch = %s and looked_at <= %s order by look_id desc limit 1)) p

-- name: load_newest_counts
select f ->> 'difference', (f ->> 'count')::bigint
from jsonb_array_elements((
    select document -> 'found' from batchledger.watch_look where watch = %s order by look_id desc limit 1)) f

-- name: insert_watch
insert into batchledger.watch (watch, subject, since, revision)
values (%s, %s, %s, floor(random() * 1e15))
on conflict do nothing

-- name: advance_watch
update batchledger.watch set revision = revision + 1, since = %s where watch = %s and revision = %s

-- name: store_starts
insert into batchledger.watch_start (watch, topic, partition, topic_id, start_offset)
select %(watch)s, s.* from unnest(%(topics)s::text[], %(partitions)s::int[], %(ids)s::text[], %(starts)s::bigint[]) s
on conflict (watch, topic, partition) do update set start_offset = excluded.start_offset

-- name: remove_parts_before_starts
delete from batchledger.watch_part p
using batchledger.watch_start s
where p.watch = %s and (s.watch, s.topic, s.partition) = (p.watch, p.topic, p.partition)
    and (p.part + 1) * 1048576 <= s.start_offset

-- name: change_parts
with pieces as (
    select p.topic, p.partition, part, p.kind,
        int8range(greatest(p.start, part * 1048576), least(p.until, (part + 1) * 1048576)) as piece
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(kinds)s::text[], %(starts)s::bigint[], %(untils)s::bigint[])
            as p (topic, partition, kind, start, until),
        generate_series(p.start / 1048576, (p.until - 1) / 1048576) as part
), changes as (
    select topic, partition, part,
        coalesce(range_agg(piece) filter (where kind = 'proved'), '{}') as proved,
        coalesce(range_agg(piece) filter (where kind = 'held'), '{}') as held,
        coalesce(range_agg(piece) filter (where kind = 'withdrawn'), '{}') as withdrawn,
        coalesce(range_agg(piece) filter (where kind = 'asked'), '{}') as asked,
        coalesce(range_agg(piece) filter (where kind = 'lacking'), '{}') as lacking,
        coalesce(range_agg(piece) filter (where kind = 'surplus'), '{}') as surplus
    from pieces
    group by topic, partition, part
), updated as (
    update batchledger.watch_part w set
        proved = w.proved + c.proved - c.withdrawn,
        held = w.held + c.held,
        lacking = w.lacking - c.asked + c.lacking,
        surplus = w.surplus - c.asked + c.surplus
    from changes c
    where w.watch = %(watch)s and (w.topic, w.partition, w.part) = (c.topic, c.partition, c.part)
    returning w.topic, w.partition, w.part
)
insert into batchledger.watch_part (watch, topic, partition, part, proved, held, lacking, surplus)
select %(watch)s, c.topic, c.partition, c.part, c.proved, c.held, c.lacking, c.surplus
from changes c
where (c.topic, c.partition, c.part) not in (select topic, partition, part from updated)

-- name: load_fingerprints
select topic, partition, part, fingerprint, is_changed
from batchledger.watch_part
where watch = %s and (fingerprint is not null or is_changed)

-- name: store_fingerprints
update batchledger.watch_part w set fingerprint = s.value, is_changed = s.is_changed
from unnest(%(topics)s::text[], %(partitions)s::int[], %(parts)s::bigint[], %(values)s::bigint[], %(changed)s::boolean[])
        as s (topic, partition, part, value, is_changed)
where w.watch = %(watch)s and (w.topic, w.partition, w.part) = (s.topic, s.partition, s.part)

-- name: insert_watch_look
insert into batchledger.watch_look (watch, looked_at, outcome, document) values (%s, %s, %s, %s)

-- name: remove_old_looks
delete from batchledger.watch_look where watch = %s and looked_at < now() - interval '90 days'

-- name: load_newest_look
select document from batchledger.watch_look where watch = %s order by look_id desc limit 1

-- name: forget_watch
delete from batchledger.watch where watch = %s
