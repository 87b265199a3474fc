-- What each pipeline has published in all, so that metrics need not read its history: a year of batches has millions of
-- ranges. Each transaction that publishes or discards a batch adds to it.

create table batchledger.pipeline_total (
    pipeline         text primary key references batchledger.pipeline,
    published        bigint not null default 0,
    discarded        bigint not null default 0,
    accepted         bigint not null default 0,
    duplicates       bigint not null default 0,
    quarantined      bigint not null default 0,
    tombstones       bigint not null default 0,
    filtered         bigint not null default 0,
    holes            bigint not null default 0,
    accepted_loss    bigint not null default 0,
    unexplained      bigint not null default 0,
    timed            bigint not null default 0,
    stage_seconds    double precision not null default 0,
    audit_seconds    double precision not null default 0,
    publish_seconds  double precision not null default 0
) with (fillfactor = 50);
comment on table batchledger.pipeline_total is
    'The sums of all batches of a pipeline that were published or discarded, without dry runs. A number only grows: what a replay or a rewind takes over stays counted.';
comment on column batchledger.pipeline_total.unexplained is
    'Offsets of published ranges that no line of the balance accounts for; batch_range_balanced keeps it at 0.';
comment on column batchledger.pipeline_total.timed is
    'How many published batches the seconds are of: without those that a person has given up or accepted.';

insert into batchledger.pipeline_total (
    pipeline, published, discarded, accepted, duplicates, quarantined, tombstones, filtered, holes, accepted_loss,
    unexplained, timed, stage_seconds, audit_seconds, publish_seconds)
select b.pipeline, b.published, b.discarded, coalesce(r.accepted, 0), coalesce(r.duplicates, 0),
    coalesce(r.quarantined, 0), coalesce(r.tombstones, 0), coalesce(r.filtered, 0), coalesce(r.holes, 0),
    coalesce(r.accepted_loss, 0), coalesce(r.unexplained, 0), coalesce(s.timed, 0), coalesce(s.stage_seconds, 0),
    coalesce(s.audit_seconds, 0), coalesce(s.publish_seconds, 0)
from (
    select pipeline, count(*) filter (where state = 'published') as published,
        count(*) filter (where state = 'discarded') as discarded
    from batchledger.batch
    where state in ('published', 'discarded') and not is_dry_run
    group by pipeline) b
left join (
    select b.pipeline, sum(r.accepted) as accepted, sum(r.duplicates) as duplicates, sum(r.quarantined) as quarantined,
        sum(r.tombstones) as tombstones, sum(r.filtered) as filtered, sum(r.holes) as holes,
        sum(r.accepted_loss) as accepted_loss, sum(abs(r.unexplained)) as unexplained
    from batchledger.batch b
    join batchledger.batch_range r using (batch_id)
    where b.state = 'published'
    group by b.pipeline) r using (pipeline)
left join (
    select b.pipeline, count(*) as timed,
        sum(greatest(0, extract(epoch from a.staged_at - a.opened_at))) as stage_seconds,
        sum(greatest(0, extract(epoch from a.audited_at - a.staged_at))) as audit_seconds,
        sum(greatest(0, extract(epoch from b.published_at - a.audited_at))) as publish_seconds
    from batchledger.batch b
    join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
    where b.state = 'published' and a.staged_at is not null and a.audited_at is not null
        and not exists (select from batchledger.decision d where d.batch_id = b.batch_id and d.kind = 'accept')
    group by b.pipeline) s using (pipeline);
