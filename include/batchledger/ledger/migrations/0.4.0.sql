-- Watches: tables that others write, proved against their topics.

create table batchledger.watch (
    watch text primary key,
    subject text not null,
    since text not null,
    revision bigint not null
);
comment on table batchledger.watch is 'A table that others write, and that a watch proves.';
comment on column batchledger.watch.subject is
    'What is watched: connections, topics, table and coordinates. What was proved is true of this alone.';
comment on column batchledger.watch.since is 'Where the file lets the watch begin.';
comment on column batchledger.watch.revision is
    'Counts the looks, from a number by chance on. A look that began at another one is not stored.';

create table batchledger.watch_start (
    watch text not null references batchledger.watch on delete cascade,
    topic text not null,
    partition int not null,
    topic_id text not null,
    start_offset bigint not null,
    primary key (watch, topic, partition)
);
comment on table batchledger.watch_start is 'Where a watch begins in each partition.';

create table batchledger.watch_part (
    watch text not null references batchledger.watch on delete cascade,
    topic text not null,
    partition int not null,
    part bigint not null,
    proved int8multirange not null,
    held int8multirange not null,
    lacking int8multirange not null,
    surplus int8multirange not null,
    fingerprint bigint,
    is_changed boolean not null default false,
    primary key (watch, topic, partition, part)
);
comment on table batchledger.watch_part is 'What was proved of 1,048,576 offsets that stand beside each other.';
comment on column batchledger.watch_part.part is 'The offsets divided by 1,048,576.';
comment on column batchledger.watch_part.proved is 'Offsets with one row for a record, or with neither.';
comment on column batchledger.watch_part.held is 'Offsets at which a look has seen a row.';
comment on column batchledger.watch_part.lacking is 'Offsets at which a look has seen a record and no row.';
comment on column batchledger.watch_part.surplus is 'Offsets at which a look has seen a row and no record.';
comment on column batchledger.watch_part.fingerprint is
    'A hash of the rows at the held offsets, if it was asked for; null: not known.';
comment on column batchledger.watch_part.is_changed is 'A look has found another hash. Each look proves the part again.';

create table batchledger.watch_look (
    look_id bigint generated always as identity primary key,
    watch text not null references batchledger.watch on delete cascade,
    looked_at timestamptz not null,
    outcome text not null check (outcome in ('proved', 'wrong', 'cannot say')),
    document jsonb not null
);
create index watch_look_newest on batchledger.watch_look (watch, look_id desc);
comment on table batchledger.watch_look is 'What each look has said.';

-- A role that is held to its pipelines is held to its watches, too: both have their names in pipeline_role.
do $$
declare
    one text;
begin
    foreach one in array array['watch', 'watch_start', 'watch_part', 'watch_look'] loop
        execute format('alter table batchledger.%I enable row level security', one);
        execute format(
            'create policy own_pipelines on batchledger.%I using ('
            '(select batchledger.pipelines_of(current_user)) is null '
            'or watch = any ((select batchledger.pipelines_of(current_user))::text[]))', one);
    end loop;
end $$;

-- Pipelines, one write.
alter table batchledger.attempt add column given_up text;
comment on column batchledger.attempt.given_up is 'Why its rows did not stream into the target, but were staged.';
