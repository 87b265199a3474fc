SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA batchledger;
CREATE SCHEMA batchledger_staging;
CREATE EXTENSION IF NOT EXISTS btree_gist WITH SCHEMA batchledger;
CREATE FUNCTION batchledger.count_quarantined() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    if tg_op = 'INSERT' then
        insert into batchledger.quarantine_kind as kind (pipeline, error_digest, error, records)
        select pipeline, sha256(convert_to(error, 'UTF8')), error, count(*)
        from changed
        group by pipeline, error
        on conflict (pipeline, error_digest) do update set records = kind.records + excluded.records;
    else
        update batchledger.quarantine_kind kind
        set records = kind.records - gone.records
        from (select pipeline, error, count(*) as records from changed group by pipeline, error) gone
        where kind.pipeline = gone.pipeline and kind.error_digest = sha256(convert_to(gone.error, 'UTF8'));
        delete from batchledger.quarantine_kind
        where records = 0 and pipeline in (select pipeline from changed);
    end if;
    return null;
end $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE batchledger.attempt (
    batch_id bigint NOT NULL,
    number integer NOT NULL,
    run text NOT NULL,
    opened_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    staged_at timestamp with time zone,
    audited_at timestamp with time zone,
    ended_at timestamp with time zone,
    outcome text,
    error text,
    failed_step text,
    CONSTRAINT attempt_error_has_step CHECK (((error IS NULL) = (failed_step IS NULL))),
    CONSTRAINT attempt_failed_step_check CHECK ((failed_step = ANY (ARRAY['stage'::text, 'audit'::text, 'publish'::text]))),
    CONSTRAINT attempt_number_check CHECK ((number > 0)),
    CONSTRAINT attempt_outcome_check CHECK ((outcome = ANY (ARRAY['published'::text, 'blocked'::text, 'fenced'::text, 'failed'::text, 'compared'::text])))
);
CREATE TABLE batchledger.audit_result (
    pipeline text NOT NULL,
    audited_at timestamp with time zone NOT NULL,
    name text NOT NULL,
    outcome text NOT NULL,
    severity text NOT NULL,
    detail text NOT NULL,
    observed jsonb NOT NULL,
    validation jsonb,
    CONSTRAINT audit_result_outcome_check CHECK ((outcome = ANY (ARRAY['passed'::text, 'failed'::text, 'not_run'::text, 'empty'::text]))),
    CONSTRAINT audit_result_severity_check CHECK ((severity = ANY (ARRAY['critical'::text, 'warning'::text, 'info'::text])))
);
CREATE TABLE batchledger.batch (
    batch_id bigint NOT NULL,
    pipeline text NOT NULL,
    lane text NOT NULL,
    state text DEFAULT 'planned'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    lag_left_records bigint NOT NULL,
    reported_rows bigint,
    published_rows bigint,
    planned_by text NOT NULL,
    planned_at timestamp with time zone DEFAULT now() NOT NULL,
    published_at timestamp with time zone,
    delivery text DEFAULT 'exactly_once'::text NOT NULL,
    rows_published_at timestamp with time zone,
    request_key text,
    origin text DEFAULT 'kafka'::text NOT NULL,
    is_dry_run boolean DEFAULT false NOT NULL,
    dry_run jsonb,
    announced_ends bigint[],
    CONSTRAINT batch_delivery_check CHECK ((delivery = ANY (ARRAY['exactly_once'::text, 'at_least_once'::text, 'at_most_once'::text]))),
    CONSTRAINT batch_dry_run_found_at_its_end CHECK (((dry_run IS NULL) OR (is_dry_run AND (state = 'discarded'::text)))),
    CONSTRAINT batch_dry_run_stays_invisible CHECK ((NOT (is_dry_run AND (state = 'published'::text)))),
    CONSTRAINT batch_lane_check CHECK ((lane = ANY (ARRAY['live'::text, 'replay'::text]))),
    CONSTRAINT batch_origin_check CHECK ((origin = ANY (ARRAY['kafka'::text, 'quarantine'::text]))),
    CONSTRAINT batch_state_check CHECK ((state = ANY (ARRAY['planned'::text, 'staged'::text, 'audited'::text, 'committing'::text, 'published'::text, 'blocked'::text, 'discarded'::text])))
);
ALTER TABLE batchledger.batch ALTER COLUMN batch_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME batchledger.batch_batch_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE batchledger.batch_range (
    batch_id bigint NOT NULL,
    pipeline text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    offsets int8range NOT NULL,
    published_live boolean DEFAULT false NOT NULL,
    accepted bigint,
    duplicates bigint,
    quarantined bigint,
    tombstones bigint,
    filtered bigint,
    holes bigint,
    accepted_loss bigint,
    unexplained bigint GENERATED ALWAYS AS (((((((((upper(offsets) - lower(offsets)) - accepted) - duplicates) - quarantined) - tombstones) - filtered) - holes) - accepted_loss)) STORED,
    aborted bigint,
    markers bigint,
    compacted bigint,
    epoch integer DEFAULT 0 NOT NULL,
    held int8multirange DEFAULT '{}'::int8multirange NOT NULL,
    quarantine_dropped bigint DEFAULT 0 NOT NULL,
    timestamps int8range,
    untimed bigint,
    CONSTRAINT batch_range_balanced CHECK ((((NOT published_live) AND isempty(held)) OR ((unexplained IS NOT NULL) AND (unexplained = 0)))),
    CONSTRAINT batch_range_offsets_check CHECK ((NOT isempty(offsets)))
);
CREATE TABLE batchledger.check_result (
    batch_id bigint NOT NULL,
    attempt integer NOT NULL,
    name text NOT NULL,
    detail text NOT NULL,
    observed jsonb NOT NULL,
    judged_at timestamp with time zone DEFAULT now() NOT NULL,
    outcome text NOT NULL,
    severity text DEFAULT 'critical'::text NOT NULL,
    suite text DEFAULT 'integrity'::text NOT NULL,
    validation jsonb,
    passed boolean GENERATED ALWAYS AS ((outcome = 'passed'::text)) STORED NOT NULL,
    on_failure text DEFAULT 'block'::text NOT NULL,
    CONSTRAINT check_result_on_failure_check CHECK ((on_failure = ANY (ARRAY['block'::text, 'quarantine'::text, 'publish'::text]))),
    CONSTRAINT check_result_outcome CHECK ((outcome = ANY (ARRAY['passed'::text, 'failed'::text, 'not_run'::text, 'empty'::text]))),
    CONSTRAINT check_result_severity_check CHECK ((severity = ANY (ARRAY['critical'::text, 'warning'::text, 'info'::text]))),
    CONSTRAINT check_result_suite_check CHECK ((suite = ANY (ARRAY['integrity'::text, 'pipeline'::text])))
);
CREATE TABLE batchledger.decision (
    decision_id bigint NOT NULL,
    batch_id bigint,
    kind text NOT NULL,
    decided_by text NOT NULL,
    reason text NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    pipeline text NOT NULL,
    before jsonb,
    after jsonb,
    CONSTRAINT decision_reason_check CHECK ((reason <> ''::text))
);
ALTER TABLE batchledger.decision ALTER COLUMN decision_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME batchledger.decision_decision_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE batchledger.deleted_key (
    pipeline text NOT NULL,
    key_hash bytea NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    "timestamp" timestamp with time zone,
    batch_id bigint NOT NULL
);
CREATE TABLE batchledger.duplicate (
    batch_id bigint NOT NULL,
    pipeline text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    first_topic text NOT NULL,
    first_partition integer NOT NULL,
    first_offset bigint NOT NULL,
    key_hash bytea
);
CREATE TABLE batchledger.incident (
    incident_id bigint NOT NULL,
    pipeline text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    severity text NOT NULL,
    title text NOT NULL,
    lines text[] NOT NULL,
    command text NOT NULL,
    batch_id bigint,
    run text,
    opened_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    ending text DEFAULT ''::text NOT NULL,
    CONSTRAINT incident_severity_check CHECK ((severity = ANY (ARRAY['critical'::text, 'warning'::text, 'info'::text])))
);
ALTER TABLE batchledger.incident ALTER COLUMN incident_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME batchledger.incident_incident_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE batchledger.key_type (
    pipeline text NOT NULL,
    rule text NOT NULL,
    columns text[] NOT NULL,
    types text[] NOT NULL,
    CONSTRAINT key_type_check CHECK ((cardinality(columns) = cardinality(types)))
);
CREATE TABLE batchledger.message_key (
    pipeline text NOT NULL,
    key_hash bytea NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    batch_id bigint NOT NULL,
    remembered_until timestamp with time zone NOT NULL
);
CREATE TABLE batchledger.migration (
    version_num character varying(32) NOT NULL
);
CREATE TABLE batchledger.notification (
    notification_id bigint NOT NULL,
    incident_id bigint NOT NULL,
    channel text NOT NULL,
    event text NOT NULL,
    next_try_at timestamp with time zone NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    sent_at timestamp with time zone,
    given_up_at timestamp with time zone,
    last_error text,
    CONSTRAINT notification_event_check CHECK ((event = ANY (ARRAY['opened'::text, 'ended'::text])))
);
ALTER TABLE batchledger.notification ALTER COLUMN notification_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME batchledger.notification_notification_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE batchledger.pipeline (
    name text NOT NULL,
    target text,
    target_identity text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    pause_id bigint,
    ledger_mark text
);
CREATE TABLE batchledger."position" (
    pipeline text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    origin_offset bigint NOT NULL,
    next_offset bigint NOT NULL,
    cluster_id text NOT NULL,
    topic_id text NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    held_back_at bigint,
    held_back_since timestamp with time zone,
    rewound_to bigint,
    CONSTRAINT position_check CHECK ((next_offset >= origin_offset)),
    CONSTRAINT position_origin_offset_check CHECK ((origin_offset >= 0)),
    CONSTRAINT position_rewound_within CHECK (((rewound_to >= origin_offset) AND (rewound_to <= next_offset)))
);
CREATE TABLE batchledger.presence (
    batch_id bigint NOT NULL,
    run text NOT NULL,
    worker text NOT NULL,
    holder bigint NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    is_handed_on boolean DEFAULT false NOT NULL
);
CREATE TABLE batchledger.quarantine (
    pipeline text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    "timestamp" timestamp with time zone,
    key bytea,
    value bytea,
    headers json,
    error text NOT NULL,
    batch_id bigint NOT NULL,
    quarantined_at timestamp with time zone DEFAULT now() NOT NULL,
    timestamp_ms bigint
);
CREATE TABLE batchledger.quarantine_kind (
    pipeline text NOT NULL,
    error_digest bytea NOT NULL,
    error text NOT NULL,
    records bigint NOT NULL,
    CONSTRAINT quarantine_kind_records_check CHECK ((records >= 0))
);
CREATE TABLE batchledger.replacement (
    batch_id bigint NOT NULL,
    replaced_batch_id bigint NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    offsets int8range NOT NULL,
    rows bigint NOT NULL,
    quarantined bigint NOT NULL,
    duplicates bigint NOT NULL,
    CONSTRAINT replacement_offsets_check CHECK ((NOT isempty(offsets)))
);
CREATE TABLE batchledger.sequence (
    pipeline text NOT NULL,
    key_hash bytea NOT NULL,
    key text NOT NULL,
    run integer NOT NULL,
    seen int8multirange NOT NULL,
    batch_id bigint NOT NULL
);
CREATE TABLE batchledger_staging.b9_a1_quarantine (
    topic text,
    partition integer,
    "offset" bigint,
    timestamp_ms bigint,
    key bytea,
    value bytea,
    headers text,
    error text,
    checks text[]
);
CREATE UNLOGGED TABLE batchledger_staging.b9_a1_rows (
    message_id text,
    number integer,
    amount double precision,
    _topic text CONSTRAINT b9_a1_open__topic_not_null NOT NULL,
    _partition integer CONSTRAINT b9_a1_open__partition_not_null NOT NULL,
    _offset bigint CONSTRAINT b9_a1_open__offset_not_null NOT NULL,
    _timestamp timestamp with time zone,
    _task bigint CONSTRAINT b9_a1_open__task_not_null NOT NULL
);
CREATE TABLE batchledger_staging.b9_a1_visible (
    reader integer,
    topic text,
    partition integer,
    offsets int8range,
    tombstones int8range
);
CREATE TABLE public.customers (
    message_id text NOT NULL,
    number integer,
    amount double precision,
    _topic text,
    _partition integer,
    _offset bigint,
    _timestamp timestamp with time zone,
    _batch_id bigint NOT NULL
);
CREATE TABLE public.orders (
    message_id text,
    number integer,
    amount double precision,
    _topic text,
    _partition integer,
    _offset bigint,
    _timestamp timestamp with time zone,
    _batch_id bigint NOT NULL
);
CREATE TABLE public.payments (
    message_id text,
    number integer,
    amount double precision,
    _topic text,
    _partition integer,
    _offset bigint,
    _timestamp timestamp with time zone,
    _batch_id bigint NOT NULL
);
CREATE TABLE public.refunds (
    message_id text,
    number integer,
    amount double precision,
    _topic text,
    _partition integer,
    _offset bigint,
    _timestamp timestamp with time zone,
    _batch_id bigint NOT NULL
);
INSERT INTO batchledger.attempt VALUES
	(11, 1, 'cli__2026-11-25T01:07:43.009+00:00__root@vm', '2026-11-25 01:07:43.82651+00', '2026-11-25 01:07:49.965266+00', '2026-11-25 01:07:50.149493+00', '2026-11-25 01:07:50.150049+00', 'blocked', NULL, NULL),
	(1, 1, 'cli__2026-11-25T01:05:23.620+00:00__root@vm', '2026-11-25 01:05:23.863985+00', '2026-11-25 01:05:35.026+00', '2026-11-25 01:05:38.630474+00', '2026-11-25 01:05:38.649814+00', 'published', NULL, NULL),
	(2, 1, 'cli__2026-11-25T01:05:47.183+00:00__root@vm', '2026-11-25 01:05:47.354142+00', '2026-11-25 01:05:49.950504+00', '2026-11-25 01:05:54.606685+00', '2026-11-25 01:05:54.646588+00', 'published', NULL, NULL),
	(3, 1, 'cli__2026-11-25T01:06:02.758+00:00__root@vm', '2026-11-25 01:06:02.871314+00', '2026-11-25 01:06:04.853817+00', '2026-11-25 01:06:08.749513+00', '2026-11-25 01:06:08.80088+00', 'published', NULL, NULL),
	(4, 1, 'cli__2026-11-25T01:06:14.155+00:00__root@vm', '2026-11-25 01:06:14.279176+00', '2026-11-25 01:06:15.753637+00', '2026-11-25 01:06:19.931599+00', '2026-11-25 01:06:19.970677+00', 'published', NULL, NULL),
	(5, 1, 'cli__2026-11-25T01:06:25.157+00:00__root@vm', '2026-11-25 01:06:25.288397+00', '2026-11-25 01:06:26.366487+00', '2026-11-25 01:06:29.87862+00', '2026-11-25 01:06:29.927513+00', 'compared', NULL, NULL),
	(6, 1, 'cli__2026-11-25T01:06:50.369+00:00__root@vm', '2026-11-25 01:06:50.459511+00', '2026-11-25 01:06:51.472003+00', '2026-11-25 01:06:53.27645+00', '2026-11-25 01:06:53.28694+00', 'published', NULL, NULL),
	(7, 1, 'cli__2026-11-25T01:06:56.574+00:00__root@vm', '2026-11-25 01:06:56.744036+00', '2026-11-25 01:06:57.614446+00', '2026-11-25 01:06:59.277282+00', '2026-11-25 01:06:59.287215+00', 'published', NULL, NULL),
	(8, 1, 'cli__2026-11-25T01:07:02.741+00:00__root@vm', '2026-11-25 01:07:02.834129+00', '2026-11-25 01:07:05.491932+00', '2026-11-25 01:07:05.964036+00', '2026-11-25 01:07:05.972551+00', 'published', NULL, NULL),
	(9, 1, 'cli__2026-11-25T01:07:11.415+00:00__root@vm', '2026-11-25 01:07:11.521147+00', '2026-11-25 01:07:16.420761+00', '2026-11-25 01:07:17.65508+00', '2026-11-25 01:07:17.655545+00', 'blocked', NULL, NULL),
	(10, 1, 'cli__2026-11-25T01:07:28.025+00:00__root@vm', '2026-11-25 01:07:28.177914+00', '2026-11-25 01:07:33.499891+00', '2026-11-25 01:07:34.573826+00', '2026-11-25 01:07:34.583209+00', 'published', NULL, NULL);
INSERT INTO batchledger.batch OVERRIDING SYSTEM VALUE VALUES
	(1, 'orders', 'live', 'published', 1, 0, 40, 40, 'cli__2026-11-25T01:05:23.620+00:00__root@vm', '2026-11-25 01:05:23.740532+00', '2026-11-25 01:05:38.649299+00', 'exactly_once', '2026-11-25 01:05:38.674771+00', NULL, 'kafka', false, NULL, NULL),
	(7, 'customers', 'live', 'published', 1, 0, 20, 20, 'cli__2026-11-25T01:06:56.574+00:00__root@vm', '2026-11-25 01:06:56.677606+00', '2026-11-25 01:06:59.286939+00', 'exactly_once', '2026-11-25 01:06:59.296649+00', NULL, 'kafka', false, NULL, NULL),
	(2, 'orders', 'live', 'published', 1, 0, 25, 20, 'cli__2026-11-25T01:05:47.183+00:00__root@vm', '2026-11-25 01:05:47.284503+00', '2026-11-25 01:05:54.64552+00', 'exactly_once', '2026-11-25 01:05:54.686524+00', NULL, 'kafka', false, NULL, NULL),
	(3, 'orders', 'live', 'published', 1, 0, 20, 20, 'cli__2026-11-25T01:06:02.758+00:00__root@vm', '2026-11-25 01:06:02.826877+00', '2026-11-25 01:06:08.800114+00', 'exactly_once', '2026-11-25 01:06:08.835833+00', NULL, 'kafka', false, NULL, NULL),
	(4, 'orders', 'replay', 'published', 1, 0, 10, 10, 'cli__2026-11-25T01:06:14.155+00:00__root@vm', '2026-11-25 01:06:14.196085+00', '2026-11-25 01:06:19.968419+00', 'exactly_once', '2026-11-25 01:06:20.023074+00', 'cli__2026-11-25T01:06:14.155+00:00__root@vm', 'kafka', false, NULL, NULL),
	(5, 'orders', 'replay', 'discarded', 1, 0, 10, NULL, 'cli__2026-11-25T01:06:25.157+00:00__root@vm', '2026-11-25 01:06:25.255358+00', NULL, 'exactly_once', NULL, NULL, 'kafka', true, '{"notes": [], "expired": [], "replaced": [{"rows": 10, "range": "orders[1] 5..15", "batch_id": 1}], "comparison": {"added": 0, "changed": 0, "removed": 0, "examples": [], "repeated": 0, "unchanged": 10, "absent_columns": []}, "objections": []}', NULL),
	(6, 'customers', 'live', 'published', 1, 0, 20, 20, 'cli__2026-11-25T01:06:50.369+00:00__root@vm', '2026-11-25 01:06:50.416043+00', '2026-11-25 01:06:53.286615+00', 'exactly_once', '2026-11-25 01:06:53.300152+00', NULL, 'kafka', false, NULL, NULL),
	(8, 'payments', 'live', 'published', 1, 0, 10, 10, 'cli__2026-11-25T01:07:02.741+00:00__root@vm', '2026-11-25 01:07:02.790727+00', '2026-11-25 01:07:05.972299+00', 'exactly_once', '2026-11-25 01:07:05.980971+00', NULL, 'kafka', false, NULL, NULL),
	(9, 'payments', 'live', 'blocked', 1, 0, 10, NULL, 'cli__2026-11-25T01:07:11.415+00:00__root@vm', '2026-11-25 01:07:11.462168+00', NULL, 'exactly_once', NULL, NULL, 'kafka', false, NULL, NULL),
	(10, 'refunds', 'live', 'published', 1, 0, 10, 10, 'cli__2026-11-25T01:07:28.025+00:00__root@vm', '2026-11-25 01:07:28.09593+00', '2026-11-25 01:07:34.582975+00', 'exactly_once', '2026-11-25 01:07:34.590952+00', NULL, 'kafka', false, NULL, NULL),
	(11, 'refunds', 'live', 'discarded', 1, 0, 4, NULL, 'cli__2026-11-25T01:07:43.009+00:00__root@vm', '2026-11-25 01:07:43.761826+00', NULL, 'exactly_once', NULL, NULL, 'kafka', false, NULL, NULL),
	(12, 'refunds', 'live', 'published', 0, 0, NULL, 0, 'root@vm', '2026-11-25 01:07:59.1188+00', '2026-11-25 01:07:59.121297+00', 'exactly_once', NULL, NULL, 'kafka', false, NULL, NULL);
INSERT INTO batchledger.batch_range VALUES
	(1, 'orders', 'orders', 1, '[0,20)', true, 20, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,20)}', 0, '[1795568719460,1795568719462)', 0),
	(2, 'orders', 'orders', 0, '[20,34)', true, 10, 3, 1, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[20,34)}', 0, '[1795568742213,1795568742214)', 0),
	(2, 'orders', 'orders', 1, '[20,34)', true, 10, 2, 2, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[20,34)}', 0, '[1795568742213,1795568742214)', 0),
	(3, 'orders', 'orders', 0, '[34,44)', true, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[34,44)}', 0, '[1795568758601,1795568758602)', 0),
	(3, 'orders', 'orders', 1, '[34,44)', true, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[34,44)}', 0, '[1795568758601,1795568758602)', 0),
	(1, 'orders', 'orders', 0, '[0,20)', true, 20, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,5),[15,20)}', 0, '[1795568719460,1795568719462)', 0),
	(4, 'orders', 'orders', 0, '[5,15)', false, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[5,15)}', 0, '[1795568719461,1795568719462)', 0),
	(5, 'orders', 'orders', 1, '[5,15)', false, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{}', 0, '[1795568719461,1795568719462)', 0),
	(6, 'customers', 'customers', 0, '[0,10)', true, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,10)}', 0, '[1795568807055,1795568807056)', 0),
	(6, 'customers', 'customers', 1, '[0,10)', true, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,10)}', 0, '[1795568807055,1795568807056)', 0),
	(7, 'customers', 'customers', 0, '[10,20)', true, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[10,20)}', 0, '[1795568814392,1795568814393)', 0),
	(7, 'customers', 'customers', 1, '[10,20)', true, 10, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[10,20)}', 0, '[1795568814392,1795568814393)', 0),
	(8, 'payments', 'payments', 0, '[0,5)', true, 5, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,5)}', 0, '[1795568820481,1795568820482)', 0),
	(8, 'payments', 'payments', 1, '[0,5)', true, 5, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,5)}', 0, '[1795568820481,1795568820482)', 0),
	(9, 'payments', 'payments', 0, '[5,10)', false, 5, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{}', 0, '[1795568828615,1795568828616)', 0),
	(9, 'payments', 'payments', 1, '[5,10)', false, 5, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{}', 0, '[1795568828615,1795568828616)', 0),
	(10, 'refunds', 'refunds', 0, '[0,5)', true, 5, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,5)}', 0, '[1795568842549,1795568842550)', 0),
	(10, 'refunds', 'refunds', 1, '[0,5)', true, 5, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{[0,5)}', 0, '[1795568842549,1795568842550)', 0),
	(11, 'refunds', 'refunds', 0, '[5,7)', false, 2, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{}', 0, '[1795568858116,1795568858117)', 0),
	(11, 'refunds', 'refunds', 1, '[5,7)', false, 2, 0, 0, 0, 0, 0, 0, DEFAULT, 0, 0, 0, 0, '{}', 0, '[1795568858116,1795568858117)', 0),
	(12, 'refunds', 'refunds', 0, '[5,7)', true, 0, 0, 0, 0, 0, 0, 2, DEFAULT, 0, 0, 0, 0, '{[5,7)}', 0, NULL, NULL);
INSERT INTO batchledger.check_result VALUES
	(1, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(1, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(1, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(1, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(1, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(1, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(1, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(1, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 40, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:05:38.618724+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(2, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(2, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(2, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(2, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(2, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(2, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(2, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(2, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 28, "max_share": 0.5, "quarantined": 3, "unexpected_ranges": 0}', '2026-11-25 01:05:54.585239+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(3, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(3, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(3, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(3, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(3, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(3, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(3, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(3, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 20, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:06:08.738284+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(4, 1, 'no_duplicate_offsets', '1 range: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:19.926646+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(4, 1, 'no_rows_outside_ranges', '1 range: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:19.926646+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(4, 1, 'no_unexplained_holes', '1 range: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:19.926646+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(4, 1, 'balance_closes', '1 range: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:19.926646+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(4, 1, 'staged_as_reported', '1 range: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:19.926646+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(4, 1, 'quarantine_within_limit', '1 range: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 1, "records": 10, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:06:19.926646+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(5, 1, 'no_duplicate_offsets', '1 range: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:29.866764+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(5, 1, 'no_rows_outside_ranges', '1 range: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:29.866764+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(5, 1, 'no_unexplained_holes', '1 range: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:29.866764+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(5, 1, 'balance_closes', '1 range: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:29.866764+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(5, 1, 'staged_as_reported', '1 range: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 1, "unexpected_ranges": 0}', '2026-11-25 01:06:29.866764+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(5, 1, 'quarantine_within_limit', '1 range: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 1, "records": 10, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:06:29.866764+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 1, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(6, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(6, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(6, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(6, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(6, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(6, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(6, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(6, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 20, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:06:53.271718+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(7, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(7, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(7, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(7, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(7, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(7, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(7, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(7, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 20, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:06:59.272342+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(8, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(8, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(8, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(8, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(8, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(8, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(8, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(8, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 10, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(8, 1, 'expect_column_values_to_be_between(amount)', '0 of 10 do not pass', '{"rows": 10, "element_count": 10, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}', '2026-11-25 01:07:05.959089+00', 'passed', 'critical', 'pipeline', '{"meta": {}, "result": {"element_count": 10, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "expect_column_values_to_be_between(amount)"}, "type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0.0}, "severity": "critical"}}', DEFAULT, 'block'),
	(9, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(9, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(9, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(9, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(9, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(9, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(9, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(9, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 10, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:07:17.629253+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(10, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(9, 1, 'expect_column_values_to_be_between(amount)', '10 of 10 do not pass, 100.00%, for example payments[0]@5, payments[0]@6, payments[0]@7, payments[0]@8, payments[0]@9, payments[1]@5, payments[1]@6, payments[1]@7, payments[1]@8, payments[1]@9. See the records with: batchledger records payments "payments[0] 5..10" "payments[1] 5..10"', '{"rows": 10, "command": "batchledger records payments \"payments[0] 5..10\" \"payments[1] 5..10\"", "coordinates": ["payments[0]@5", "payments[0]@6", "payments[0]@7", "payments[0]@8", "payments[0]@9", "payments[1]@5", "payments[1]@6", "payments[1]@7", "payments[1]@8", "payments[1]@9"], "element_count": 10, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 10, "unexpected_percent": 100.0, "unexpected_percent_total": 100.0, "unexpected_percent_nonmissing": 100.0}', '2026-11-25 01:07:17.629253+00', 'failed', 'critical', 'pipeline', '{"meta": {}, "result": {"element_count": 10, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 10, "unexpected_percent": 100.0, "unexpected_percent_total": 100.0, "unexpected_percent_nonmissing": 100.0}, "success": false, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "expect_column_values_to_be_between(amount)"}, "type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0.0}, "severity": "critical"}}', DEFAULT, 'block'),
	(10, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(10, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(10, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(10, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(10, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(10, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(10, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 10, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(10, 1, 'expect_column_values_to_be_between(amount)', '0 of 10 do not pass', '{"rows": 10, "element_count": 10, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}', '2026-11-25 01:07:34.565326+00', 'passed', 'critical', 'pipeline', '{"meta": {}, "result": {"element_count": 10, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "expect_column_values_to_be_between(amount)"}, "type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0.0}, "severity": "critical"}}', DEFAULT, 'block'),
	(11, 1, 'no_duplicate_offsets', '2 ranges: Each (topic, partition, offset) is staged once.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_duplicate_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_duplicate_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each (topic, partition, offset) is staged once."}}', DEFAULT, 'block'),
	(11, 1, 'no_rows_outside_ranges', '2 ranges: Staging holds rows of the batch''s ranges only.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_rows_outside_ranges"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_rows_outside_ranges", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds rows of the batch''s ranges only."}}', DEFAULT, 'block'),
	(11, 1, 'no_unexplained_holes', '2 ranges: Every offset of the ranges has a visible record, or the pipeline declares such holes.', '{"holes": {}, "total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_unexplained_holes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_unexplained_holes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Every offset of the ranges has a visible record, or the pipeline declares such holes."}}', DEFAULT, 'block'),
	(11, 1, 'balance_closes', '2 ranges: until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "balance_closes"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "balance_closes", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "until - start = accepted + duplicates + quarantined + tombstones + filtered + holes + accepted loss."}}', DEFAULT, 'block'),
	(11, 1, 'staged_as_reported', '2 ranges: Staging holds as many rows as the writing tasks reported.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "staged_as_reported"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "staged_as_reported", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Staging holds as many rows as the writing tasks reported."}}', DEFAULT, 'block'),
	(11, 1, 'ranges_meet_position', '2 ranges: Each range starts at the stored next offset.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "ranges_meet_position"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "ranges_meet_position", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "Each range starts at the stored next offset."}}', DEFAULT, 'block'),
	(11, 1, 'no_published_offsets', '2 ranges: No other live batch of the epoch has published an offset of the ranges.', '{"total": 0, "ranges": 2, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "no_published_offsets"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "no_published_offsets", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No other live batch of the epoch has published an offset of the ranges."}}', DEFAULT, 'block'),
	(11, 1, 'quarantine_within_limit', '2 ranges: No more of the records are quarantined than quarantine.max_share allows.', '{"total": 0, "ranges": 2, "records": 4, "max_share": 0.5, "quarantined": 0, "unexpected_ranges": 0}', '2026-11-25 01:07:50.143593+00', 'passed', 'critical', 'integrity', '{"meta": {}, "result": {"element_count": 2, "missing_count": 0, "observed_value": 0, "missing_percent": 0.0, "unexpected_count": 0, "unexpected_percent": 0.0, "partial_unexpected_list": [], "unexpected_percent_total": 0.0, "unexpected_percent_nonmissing": 0.0}, "success": true, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "quarantine_within_limit"}, "type": "expect_fact_to_be_zero", "kwargs": {"column": "quarantine_within_limit", "batch_id": "facts-facts", "value_set": [0]}, "severity": "critical", "description": "No more of the records are quarantined than quarantine.max_share allows."}}', DEFAULT, 'block'),
	(11, 1, 'expect_column_values_to_be_between(amount)', '4 of 4 do not pass, 100.00%, for example refunds[0]@5, refunds[0]@6, refunds[1]@5, refunds[1]@6. See the records with: batchledger records refunds "refunds[0] 5..7" "refunds[1] 5..7"', '{"rows": 4, "command": "batchledger records refunds \"refunds[0] 5..7\" \"refunds[1] 5..7\"", "coordinates": ["refunds[0]@5", "refunds[0]@6", "refunds[1]@5", "refunds[1]@6"], "element_count": 4, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 4, "unexpected_percent": 100.0, "unexpected_percent_total": 100.0, "unexpected_percent_nonmissing": 100.0}', '2026-11-25 01:07:50.143593+00', 'failed', 'critical', 'pipeline', '{"meta": {}, "result": {"element_count": 4, "missing_count": 0, "missing_percent": 0.0, "unexpected_count": 4, "unexpected_percent": 100.0, "unexpected_percent_total": 100.0, "unexpected_percent_nonmissing": 100.0}, "success": false, "exception_info": {"raised_exception": false, "exception_message": null, "exception_traceback": null}, "expectation_config": {"meta": {"check": "expect_column_values_to_be_between(amount)"}, "type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0.0}, "severity": "critical"}}', DEFAULT, 'block');
INSERT INTO batchledger.decision OVERRIDING SYSTEM VALUE VALUES
	(1, 4, 'replay', 'root@vm', 'a fixture of the upgrade test', '2026-11-25 01:06:14.196085+00', 'orders', '{}', '{"expired": []}'),
	(2, 5, 'dry-run', 'root@vm', 'a fixture of the upgrade test', '2026-11-25 01:06:25.255358+00', 'orders', '{}', '{"expired": []}'),
	(3, NULL, 'pause', 'root@vm', 'a fixture of the upgrade test', '2026-11-25 01:06:39.396699+00', 'orders', '{"paused": false}', '{"paused": true}'),
	(4, NULL, 'resume', 'root@vm', 'a fixture of the upgrade test', '2026-11-25 01:06:46.106303+00', 'orders', '{"paused": true}', '{"paused": false}'),
	(5, 11, 'discard', 'root@vm', 'a fixture of the upgrade test', '2026-11-25 01:07:56.257529+00', 'refunds', '{"state": "blocked"}', '{"state": "discarded"}'),
	(6, 12, 'skip', 'root@vm', 'a fixture of the upgrade test', '2026-11-25 01:07:59.1188+00', 'refunds', '{"next_offset": {"refunds[0]": 5}}', '{"next_offset": {"refunds[0]": 7}}');
INSERT INTO batchledger.duplicate VALUES
	(2, 'orders', 'orders', 1, 20, 'orders', 0, 18, '\x4508e83949f33137e81a57b5546c53aaabedb4f7d03d27c7dfc756fe6d1a5231'),
	(2, 'orders', 'orders', 1, 21, 'orders', 0, 19, '\x8152416a22471c1edb547a0d48aa1e458cbbb69650f0e773eec97469294fd2b1'),
	(2, 'orders', 'orders', 0, 20, 'orders', 1, 17, '\xfaf387bb8a1e2b419a99ae8b91730335725f55b532c52496788fa7fd95807003'),
	(2, 'orders', 'orders', 0, 21, 'orders', 1, 18, '\xf9c181ff7e9d41dc66757eeff220601364f86fa542216a5aca7ebb46ab22326c'),
	(2, 'orders', 'orders', 0, 22, 'orders', 1, 19, '\xdb4895e489a89033d1714674f55209a652e890e12b0dee4573b2abced2c397c5');
INSERT INTO batchledger.key_type VALUES
	('orders', 'dedupe.key', '{message_id}', '{text}'),
	('customers', 'sink.key', '{message_id}', '{text}');
INSERT INTO batchledger.message_key VALUES
	('orders', '\x06021634806bce8b4c2228a1864c9fa49bffd22e878db543806416b90f19ffee', 'orders', 1, 7, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x11d830ab5d04d3c6511f72edfb49eee1afcd0dbf21d133f55c97992b99b7717e', 'orders', 0, 16, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x1b3ae5c88108e63fcd24cd7082049717edd2ad49b601f790d3a4fbe70ebcf24e', 'orders', 0, 15, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x22eddbde3a5946a4db4c797c0622cfd2c058d81d69c65e377cbb980fda1f764a', 'orders', 0, 1, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x267e65f836ce6bbce85b7c880a4c628842fe045a0db148fa1f3560be7762164e', 'orders', 0, 4, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x2ea803eb050efb44458d3cf723e61efd86c6dde3636c236a87915e48702614f1', 'orders', 1, 16, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x2eeacf4989059d659da9c7fd7994ac3ee28cdd4f6075c26e19a7c66081b7eda4', 'orders', 1, 13, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x30797d4dc9fe228223df27bf2108380e0ac32bea1886510e787358cf93869ae8', 'orders', 1, 8, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x3eca38595fdd84cb8ec06324c32863321ad92d4a9285a9e952bd0f79fac8da89', 'orders', 1, 6, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x41d35cbbcf5f42c0883c04ee75057ab176365ace029af74831bf8aa9a9e79cd7', 'orders', 0, 2, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x4508e83949f33137e81a57b5546c53aaabedb4f7d03d27c7dfc756fe6d1a5231', 'orders', 0, 18, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x74a67a2779e5710ced5f4a100559229851c8a0e7701c46af65adc13c2afe71bf', 'orders', 0, 17, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x7533275acf0c8aa3eaecde4b66ef31407b1ecc00cd2aad32d37ac6c7b7812f80', 'orders', 1, 11, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x7939d18461fbaafc8befb7ce5d0077d30377d873d43ab7180695736250d48d60', 'orders', 1, 1, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x8152416a22471c1edb547a0d48aa1e458cbbb69650f0e773eec97469294fd2b1', 'orders', 0, 19, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x9a07c19e52307f6a16fe5af67e385f06614c520ffc8901d51d4be3e9f05fd49d', 'orders', 0, 3, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xa201020253e1238d5d49dd3979594669dc0ef759132b631e5f7143b997379893', 'orders', 1, 4, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xb1e7795863e5635cc0247577f04832f84b272c5298fc1d96f0f536ce40b69c18', 'orders', 1, 3, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xc1500f22bd8e9b293320cfa856552cb8d56aa5ca4d1373f66101cdc3feffe1cb', 'orders', 1, 9, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xc24477b7781941530cd7e043f622f486195438263877ed7f80315065b85735bb', 'orders', 1, 2, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xc2d9aacb4fee842afb3b18e97238ef55f094ac1e29d1d965c517ae15f97a1081', 'orders', 1, 10, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xcc0a6d0d1ba2aaf7f932d43b45894760d8a75fbdb01c07c3273f2765cf1119ab', 'orders', 0, 0, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xcf7f7b8cda384c4ed63404f1b03aeddcd0113329488f0c9632c7da72ad95e5f9', 'orders', 1, 14, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xd37f6c33da172c38b6e5591f6be326ceb4fc7a6bf704be579091d7fc03eb9df9', 'orders', 1, 0, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xd5e1b09fa50121eaa418c2ced463b5c90433053d4c0564f4ea0036558d20764d', 'orders', 1, 15, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xdb4895e489a89033d1714674f55209a652e890e12b0dee4573b2abced2c397c5', 'orders', 1, 19, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xf9c181ff7e9d41dc66757eeff220601364f86fa542216a5aca7ebb46ab22326c', 'orders', 1, 18, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xfa9f3039fe4c209c87887e7bfb9c1f38a1fc3591480b076ee795774e2b0024cf', 'orders', 1, 5, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xfaf387bb8a1e2b419a99ae8b91730335725f55b532c52496788fa7fd95807003', 'orders', 1, 17, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xfe2973bb1850809000e47a1cc056581125108113c591a55b7009e584b3288661', 'orders', 1, 12, 1, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x0ac97beb9f233fde9b478a53f7dbe8ed1abf2d167fa02cf7ee7ca139c57e02b2', 'orders', 1, 31, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x288266e1d21f7b3a01010c45d01e2d871d3ef19873930bf866308032bfa1a4ad', 'orders', 0, 25, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x344fe390b6809e78d83650c46668b3b59cb704768713c7c57d753af43ad65d20', 'orders', 1, 23, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x499b2b1ffec3a88e3af1d25c504e6ad19e858485a33ff3f28c0059f0b47845e9', 'orders', 1, 27, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x52cc8ebc9d421daefff980f42108fe606d71854d64f2d5a4b84577a4b54c08b8', 'orders', 1, 24, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x5684d66add686fc68068b7591eb4a3c071a56cda9b68eab4029c10f66252849e', 'orders', 0, 27, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x56b9c2e4e73fe0f9b496bdfb245f0295a5b00236be5efc21c9beb5af2899694c', 'orders', 0, 26, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x661a1b38ae3bd4d75d0c7eff932e567e6560551dd84db02720db2ecc7d6b611d', 'orders', 0, 29, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x6d215f7eb84fd4f01a0e2a445a46ed6bdf9c1e6f73d88d6877e484e73126f2ef', 'orders', 0, 23, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x7295fdd3e54d5c829afcb1deda8b0dc3f10089b15127a1a910df28d1433cce3f', 'orders', 1, 28, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x7c0830ae35b92afbd90c981b6cb9a23eb00f02c66b4cdf93a7f21cc2f54a93d2', 'orders', 1, 25, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x7fcae9f1b16660b88839a6dbf87a83c5461edac11462e857f1fbfed7cd9aafc3', 'orders', 1, 29, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x8668f196598c4420c30c7e4f4791fd1d341b37c58cd4311123043dd491c665e1', 'orders', 0, 32, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x930765a948271b3dc7c33a89d2bcb1f3420a8ada76918bb99b522a21de957a58', 'orders', 0, 31, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\xa2c95c2988676b1682a83dbd2aaca444daa106944838ad728381237549b05fa8', 'orders', 0, 30, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\xa9355865d70f42447c6d8f7855faed6f86a5954393a9179cbf3cf15f3764c9c1', 'orders', 1, 22, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\xaa287a2a3bd02ea8e9d07be6cd9ac37125cd6c8c4b1f123c342f741a9396a4a6', 'orders', 1, 26, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\xc077acf50ee721df39420f38cca6f9fa6e9c2e811b25c64ed9aa651bbc8fa446', 'orders', 1, 30, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\xf434d0013a4c223a7bd7d4761b7c82e4b47c1099242c0a57e1db5d3bd4269f8a', 'orders', 0, 24, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\xf43b153719bfb1f4d87ae57c700bdfab484a6b1074975b24f8647620b8234276', 'orders', 0, 28, 2, '2026-12-25 01:05:47.284503+00'),
	('orders', '\x0bb63e8bcd09f1d88f3654de96dd4bda6c4c4f8225a5ec3701cf86e5f38ad19c', 'orders', 1, 41, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x13a68d077e99e425353c292373a4393b539ed983d6496d6ac02503ddfbda6e03', 'orders', 0, 39, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x1be5ac5d1950293b3642c8d08a23dfd7f2b9fae7a94149aa6bad9f11ba549f3c', 'orders', 1, 37, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x1f88946ad4eafb4920ee252ad6ad1a9e8b1b00f8b51a657e3078cae87d2b39ce', 'orders', 0, 36, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x28ec973708476325f50d91b2e2a3b7b56966a9f9c812be142946ae6ded2c73d7', 'orders', 0, 35, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x2bad7e1599354c5bdfa12322b2d493778d11bdb462b3221de8e3cb0cfc011bcf', 'orders', 0, 42, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x4e762876e1d789b58188512264a9bfa3a6a8d77d8593d0fec562d8a62d6dbd17', 'orders', 1, 39, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x59511e6d4859a2a290399afa945abd092061f977342262c31166b47f42f33025', 'orders', 1, 38, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x6a5209f7ce377a6424eb70c5ec21a860f6e6550718466a9b6f9ee611a02933db', 'orders', 1, 34, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x6a83c52db3f7892d34cb6189303d4649d23b0d0683eefd0850f1fdad0caff293', 'orders', 0, 43, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x8389a3ab16488be3b8e3f847c2c6760b1fbed14225c913ec60fb52da9d5a7594', 'orders', 0, 34, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x83e51e0782ec7103436097033939909093c7673ba6747baacab3d96e87af1c33', 'orders', 0, 40, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xc0d64d75745076d788dc7fa555aae89ff0a4861c74231859f4a39f304401ff9c', 'orders', 0, 37, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xc6e67dec732697df8906cc9e2c2567ba422bcf2dc60d455c13db6cd819007980', 'orders', 0, 41, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xd712d512a4a3c61c3fa1b153fafa74d66eac85a3f23b57e03297c135da49e4b9', 'orders', 1, 42, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xdbb96dc90b9b1e292c12baf38268532d04f82781255799449edef27ad52b22f9', 'orders', 1, 40, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xde5136338db869aaef4e6c0474aabc351c116a9e535ad5749b11cb10647ef703', 'orders', 1, 36, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xf100ee1e0da7f422c6f7c7476cf6a195e7f6081cb1687c03525a81bd3522023b', 'orders', 1, 43, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xf78496341d880938e08e707a3b66c8890285a334cdf6722dbb79c026fb06f145', 'orders', 1, 35, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\xf9815db161e422a467203392be75b57f0fba4c80ff9bb92f9dec6e282b1512e7', 'orders', 0, 38, 3, '2026-12-25 01:06:02.826877+00'),
	('orders', '\x14ce455a97b91ae02eabb31726b4651ce594b51163eed8049c8ad62025d2e665', 'orders', 0, 12, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x52f431741c4ecb21580179022ff7e965dbc08d741fb99b7a2f9db68b6cbc5c48', 'orders', 0, 14, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x5b72f3f8a2984e53c0e4a304c2853d06d7d3e3a6a9d09d1b863ddd69bdaca631', 'orders', 0, 6, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\x918524aab0ba80cc89997550e8ad9817a7465d8d8b4304336c65c79fad96dc3e', 'orders', 0, 8, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xbe24369f1b73ba4c21ab2ef8c0645967e7cc06bf8988c217f489050f79d962b7', 'orders', 0, 7, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xc9925663b1d36fede080520ad2be8779e55aa0017e9f4cfaa641a6842949d796', 'orders', 0, 5, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xc9e0bba1400272adcd39756f101d8661b2d1855b8924400dc84ecee27b45264f', 'orders', 0, 13, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xd33e4942fc02a827205c062ba490bf5e76886eb3ed7aa0495da05d4571e62338', 'orders', 0, 11, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xec4b2e6606761091efdc2479607bfcb3c6e882361e24931e78e11d8c7cb81a07', 'orders', 0, 10, 4, '2026-12-25 01:05:23.740532+00'),
	('orders', '\xf1859153878f973801a4f8ea8c5a95ce02e3e8e0a2769a69b10fafc1b7cc92a1', 'orders', 0, 9, 4, '2026-12-25 01:05:23.740532+00');
INSERT INTO batchledger.migration VALUES
	('0020');
INSERT INTO batchledger.pipeline VALUES
	('orders', 'public.orders', '7711908871986943716/16384/17619', '2026-11-25 01:05:23.740532+00', 0, NULL, '7711908871986943716/16384/17131/17131'),
	('customers', 'public.customers', '7711908871986943716/16384/17863', '2026-11-25 01:06:50.416043+00', 0, NULL, NULL),
	('payments', 'public.payments', '7711908871986943716/16384/17932', '2026-11-25 01:07:02.790727+00', 0, NULL, '7711908871986943716/16384/17131/17131'),
	('refunds', 'public.refunds', '7711908871986943716/16384/17991', '2026-11-25 01:07:28.09593+00', 0, NULL, '7711908871986943716/16384/17131/17131');
INSERT INTO batchledger."position" VALUES
	('orders', 'orders', 0, 0, 44, 'j4dwQfrgRHuYqEvCJZwjXw', 'TmNLJ6UVStaQQBZ5RxbQIg', '2026-11-25 01:06:08.765017+00', NULL, NULL, NULL),
	('orders', 'orders', 1, 0, 44, 'j4dwQfrgRHuYqEvCJZwjXw', 'TmNLJ6UVStaQQBZ5RxbQIg', '2026-11-25 01:06:08.765017+00', NULL, NULL, NULL),
	('customers', 'customers', 0, 0, 20, 'j4dwQfrgRHuYqEvCJZwjXw', '8CdEC5F9Sxmbtec0GebG3g', '2026-11-25 01:06:59.281197+00', NULL, NULL, NULL),
	('customers', 'customers', 1, 0, 20, 'j4dwQfrgRHuYqEvCJZwjXw', '8CdEC5F9Sxmbtec0GebG3g', '2026-11-25 01:06:59.281197+00', NULL, NULL, NULL),
	('payments', 'payments', 0, 0, 5, 'j4dwQfrgRHuYqEvCJZwjXw', 'CcsAxpezSWyMyFpL5XxgVA', '2026-11-25 01:07:05.967358+00', NULL, NULL, NULL),
	('payments', 'payments', 1, 0, 5, 'j4dwQfrgRHuYqEvCJZwjXw', 'CcsAxpezSWyMyFpL5XxgVA', '2026-11-25 01:07:05.967358+00', NULL, NULL, NULL),
	('refunds', 'refunds', 1, 0, 5, 'j4dwQfrgRHuYqEvCJZwjXw', 'T6OWBPK5Ql6JfJX+Pvdl1g', '2026-11-25 01:07:34.578136+00', NULL, NULL, NULL),
	('refunds', 'refunds', 0, 0, 7, 'j4dwQfrgRHuYqEvCJZwjXw', 'T6OWBPK5Ql6JfJX+Pvdl1g', '2026-11-25 01:07:59.1188+00', NULL, NULL, NULL);
INSERT INTO batchledger.quarantine VALUES
	('orders', 'orders', 0, 33, '2026-11-25 01:05:42.213+00', NULL, '\x7b206e6f204a534f4e', '[]', 'the value is not exactly one JSON object', 2, '2026-11-25 01:05:54.620554+00', 1795568742213),
	('orders', 'orders', 1, 32, '2026-11-25 01:05:42.213+00', NULL, '\x7b206e6f204a534f4e', '[]', 'the value is not exactly one JSON object', 2, '2026-11-25 01:05:54.620554+00', 1795568742213),
	('orders', 'orders', 1, 33, '2026-11-25 01:05:42.213+00', NULL, '\x7b206e6f204a534f4e', '[]', 'the value is not exactly one JSON object', 2, '2026-11-25 01:05:54.620554+00', 1795568742213);
INSERT INTO batchledger.quarantine_kind VALUES
	('orders', '\x75b94b43e0262b8abaac9dbdc7d791dc50c515705a614f15b8f93c5df64bf2e0', 'the value is not exactly one JSON object', 3);
INSERT INTO batchledger.replacement VALUES
	(4, 1, 'orders', 0, '[5,15)', 10, 0, 0);
INSERT INTO batchledger_staging.b9_a1_rows VALUES
	('m10', 10, -1, 'payments', 0, 5, '2026-11-25 01:07:08.615+00', 14),
	('m12', 12, -1, 'payments', 0, 6, '2026-11-25 01:07:08.615+00', 14),
	('m14', 14, -1, 'payments', 0, 7, '2026-11-25 01:07:08.615+00', 14),
	('m16', 16, -1, 'payments', 0, 8, '2026-11-25 01:07:08.615+00', 14),
	('m18', 18, -1, 'payments', 0, 9, '2026-11-25 01:07:08.615+00', 14),
	('m11', 11, -1, 'payments', 1, 5, '2026-11-25 01:07:08.615+00', 15),
	('m13', 13, -1, 'payments', 1, 6, '2026-11-25 01:07:08.615+00', 15),
	('m15', 15, -1, 'payments', 1, 7, '2026-11-25 01:07:08.615+00', 15),
	('m17', 17, -1, 'payments', 1, 8, '2026-11-25 01:07:08.615+00', 15),
	('m19', 19, -1, 'payments', 1, 9, '2026-11-25 01:07:08.615+00', 15);
INSERT INTO batchledger_staging.b9_a1_visible VALUES
	(1, NULL, NULL, NULL, NULL),
	(0, NULL, NULL, NULL, NULL),
	(NULL, 'payments', 1, '[5,10)', NULL),
	(NULL, 'payments', 0, '[5,10)', NULL);
INSERT INTO public.customers VALUES
	('m11', 11, 2.5, 'customers', 1, 15, '2026-11-25 01:06:54.392+00', 7),
	('m10', 10, 2.5, 'customers', 0, 15, '2026-11-25 01:06:54.392+00', 7),
	('m3', 3, 2.5, 'customers', 1, 11, '2026-11-25 01:06:54.392+00', 7),
	('m15', 15, 2.5, 'customers', 1, 17, '2026-11-25 01:06:54.392+00', 7),
	('m18', 18, 2.5, 'customers', 0, 19, '2026-11-25 01:06:54.392+00', 7),
	('m2', 2, 2.5, 'customers', 0, 11, '2026-11-25 01:06:54.392+00', 7),
	('m14', 14, 2.5, 'customers', 0, 17, '2026-11-25 01:06:54.392+00', 7),
	('m0', 0, 2.5, 'customers', 0, 10, '2026-11-25 01:06:54.392+00', 7),
	('m1', 1, 2.5, 'customers', 1, 10, '2026-11-25 01:06:54.392+00', 7),
	('m16', 16, 2.5, 'customers', 0, 18, '2026-11-25 01:06:54.392+00', 7),
	('m9', 9, 2.5, 'customers', 1, 14, '2026-11-25 01:06:54.392+00', 7),
	('m17', 17, 2.5, 'customers', 1, 18, '2026-11-25 01:06:54.392+00', 7),
	('m7', 7, 2.5, 'customers', 1, 13, '2026-11-25 01:06:54.392+00', 7),
	('m8', 8, 2.5, 'customers', 0, 14, '2026-11-25 01:06:54.392+00', 7),
	('m6', 6, 2.5, 'customers', 0, 13, '2026-11-25 01:06:54.392+00', 7),
	('m12', 12, 2.5, 'customers', 0, 16, '2026-11-25 01:06:54.392+00', 7),
	('m19', 19, 2.5, 'customers', 1, 19, '2026-11-25 01:06:54.392+00', 7),
	('m5', 5, 2.5, 'customers', 1, 12, '2026-11-25 01:06:54.392+00', 7),
	('m4', 4, 2.5, 'customers', 0, 12, '2026-11-25 01:06:54.392+00', 7),
	('m13', 13, 2.5, 'customers', 1, 16, '2026-11-25 01:06:54.392+00', 7);
INSERT INTO public.orders VALUES
	('m0', 0, 1.5, 'orders', 0, 0, '2026-11-25 01:05:19.46+00', 1),
	('m2', 2, 1.5, 'orders', 0, 1, '2026-11-25 01:05:19.46+00', 1),
	('m4', 4, 1.5, 'orders', 0, 2, '2026-11-25 01:05:19.461+00', 1),
	('m6', 6, 1.5, 'orders', 0, 3, '2026-11-25 01:05:19.461+00', 1),
	('m8', 8, 1.5, 'orders', 0, 4, '2026-11-25 01:05:19.461+00', 1),
	('m30', 30, 1.5, 'orders', 0, 15, '2026-11-25 01:05:19.461+00', 1),
	('m32', 32, 1.5, 'orders', 0, 16, '2026-11-25 01:05:19.461+00', 1),
	('m34', 34, 1.5, 'orders', 0, 17, '2026-11-25 01:05:19.461+00', 1),
	('m36', 36, 1.5, 'orders', 0, 18, '2026-11-25 01:05:19.461+00', 1),
	('m38', 38, 1.5, 'orders', 0, 19, '2026-11-25 01:05:19.461+00', 1),
	('m1', 1, 1.5, 'orders', 1, 0, '2026-11-25 01:05:19.46+00', 1),
	('m3', 3, 1.5, 'orders', 1, 1, '2026-11-25 01:05:19.46+00', 1),
	('m5', 5, 1.5, 'orders', 1, 2, '2026-11-25 01:05:19.461+00', 1),
	('m7', 7, 1.5, 'orders', 1, 3, '2026-11-25 01:05:19.461+00', 1),
	('m9', 9, 1.5, 'orders', 1, 4, '2026-11-25 01:05:19.461+00', 1),
	('m11', 11, 1.5, 'orders', 1, 5, '2026-11-25 01:05:19.461+00', 1),
	('m13', 13, 1.5, 'orders', 1, 6, '2026-11-25 01:05:19.461+00', 1),
	('m15', 15, 1.5, 'orders', 1, 7, '2026-11-25 01:05:19.461+00', 1),
	('m17', 17, 1.5, 'orders', 1, 8, '2026-11-25 01:05:19.461+00', 1),
	('m19', 19, 1.5, 'orders', 1, 9, '2026-11-25 01:05:19.461+00', 1),
	('m21', 21, 1.5, 'orders', 1, 10, '2026-11-25 01:05:19.461+00', 1),
	('m23', 23, 1.5, 'orders', 1, 11, '2026-11-25 01:05:19.461+00', 1),
	('m25', 25, 1.5, 'orders', 1, 12, '2026-11-25 01:05:19.461+00', 1),
	('m27', 27, 1.5, 'orders', 1, 13, '2026-11-25 01:05:19.461+00', 1),
	('m29', 29, 1.5, 'orders', 1, 14, '2026-11-25 01:05:19.461+00', 1),
	('m31', 31, 1.5, 'orders', 1, 15, '2026-11-25 01:05:19.461+00', 1),
	('m33', 33, 1.5, 'orders', 1, 16, '2026-11-25 01:05:19.461+00', 1),
	('m35', 35, 1.5, 'orders', 1, 17, '2026-11-25 01:05:19.461+00', 1),
	('m37', 37, 1.5, 'orders', 1, 18, '2026-11-25 01:05:19.461+00', 1),
	('m39', 39, 1.5, 'orders', 1, 19, '2026-11-25 01:05:19.461+00', 1),
	('m40', 40, 1.5, 'orders', 1, 22, '2026-11-25 01:05:42.213+00', 2),
	('m42', 42, 1.5, 'orders', 1, 23, '2026-11-25 01:05:42.213+00', 2),
	('m44', 44, 1.5, 'orders', 1, 24, '2026-11-25 01:05:42.213+00', 2),
	('m46', 46, 1.5, 'orders', 1, 25, '2026-11-25 01:05:42.213+00', 2),
	('m48', 48, 1.5, 'orders', 1, 26, '2026-11-25 01:05:42.213+00', 2),
	('m50', 50, 1.5, 'orders', 1, 27, '2026-11-25 01:05:42.213+00', 2),
	('m52', 52, 1.5, 'orders', 1, 28, '2026-11-25 01:05:42.213+00', 2),
	('m54', 54, 1.5, 'orders', 1, 29, '2026-11-25 01:05:42.213+00', 2),
	('m56', 56, 1.5, 'orders', 1, 30, '2026-11-25 01:05:42.213+00', 2),
	('m58', 58, 1.5, 'orders', 1, 31, '2026-11-25 01:05:42.213+00', 2),
	('m41', 41, 1.5, 'orders', 0, 23, '2026-11-25 01:05:42.213+00', 2),
	('m43', 43, 1.5, 'orders', 0, 24, '2026-11-25 01:05:42.213+00', 2),
	('m45', 45, 1.5, 'orders', 0, 25, '2026-11-25 01:05:42.213+00', 2),
	('m47', 47, 1.5, 'orders', 0, 26, '2026-11-25 01:05:42.213+00', 2),
	('m49', 49, 1.5, 'orders', 0, 27, '2026-11-25 01:05:42.213+00', 2),
	('m51', 51, 1.5, 'orders', 0, 28, '2026-11-25 01:05:42.213+00', 2),
	('m53', 53, 1.5, 'orders', 0, 29, '2026-11-25 01:05:42.213+00', 2),
	('m55', 55, 1.5, 'orders', 0, 30, '2026-11-25 01:05:42.213+00', 2),
	('m57', 57, 1.5, 'orders', 0, 31, '2026-11-25 01:05:42.213+00', 2),
	('m59', 59, 1.5, 'orders', 0, 32, '2026-11-25 01:05:42.213+00', 2),
	('m60', 60, 1.5, 'orders', 0, 34, '2026-11-25 01:05:58.601+00', 3),
	('m62', 62, 1.5, 'orders', 0, 35, '2026-11-25 01:05:58.601+00', 3),
	('m64', 64, 1.5, 'orders', 0, 36, '2026-11-25 01:05:58.601+00', 3),
	('m66', 66, 1.5, 'orders', 0, 37, '2026-11-25 01:05:58.601+00', 3),
	('m68', 68, 1.5, 'orders', 0, 38, '2026-11-25 01:05:58.601+00', 3),
	('m70', 70, 1.5, 'orders', 0, 39, '2026-11-25 01:05:58.601+00', 3),
	('m72', 72, 1.5, 'orders', 0, 40, '2026-11-25 01:05:58.601+00', 3),
	('m74', 74, 1.5, 'orders', 0, 41, '2026-11-25 01:05:58.601+00', 3),
	('m76', 76, 1.5, 'orders', 0, 42, '2026-11-25 01:05:58.601+00', 3),
	('m78', 78, 1.5, 'orders', 0, 43, '2026-11-25 01:05:58.601+00', 3),
	('m61', 61, 1.5, 'orders', 1, 34, '2026-11-25 01:05:58.601+00', 3),
	('m63', 63, 1.5, 'orders', 1, 35, '2026-11-25 01:05:58.601+00', 3),
	('m65', 65, 1.5, 'orders', 1, 36, '2026-11-25 01:05:58.601+00', 3),
	('m67', 67, 1.5, 'orders', 1, 37, '2026-11-25 01:05:58.601+00', 3),
	('m69', 69, 1.5, 'orders', 1, 38, '2026-11-25 01:05:58.601+00', 3),
	('m71', 71, 1.5, 'orders', 1, 39, '2026-11-25 01:05:58.601+00', 3),
	('m73', 73, 1.5, 'orders', 1, 40, '2026-11-25 01:05:58.601+00', 3),
	('m75', 75, 1.5, 'orders', 1, 41, '2026-11-25 01:05:58.601+00', 3),
	('m77', 77, 1.5, 'orders', 1, 42, '2026-11-25 01:05:58.601+00', 3),
	('m79', 79, 1.5, 'orders', 1, 43, '2026-11-25 01:05:58.601+00', 3),
	('m10', 10, 1.5, 'orders', 0, 5, '2026-11-25 01:05:19.461+00', 4),
	('m12', 12, 1.5, 'orders', 0, 6, '2026-11-25 01:05:19.461+00', 4),
	('m14', 14, 1.5, 'orders', 0, 7, '2026-11-25 01:05:19.461+00', 4),
	('m16', 16, 1.5, 'orders', 0, 8, '2026-11-25 01:05:19.461+00', 4),
	('m18', 18, 1.5, 'orders', 0, 9, '2026-11-25 01:05:19.461+00', 4),
	('m20', 20, 1.5, 'orders', 0, 10, '2026-11-25 01:05:19.461+00', 4),
	('m22', 22, 1.5, 'orders', 0, 11, '2026-11-25 01:05:19.461+00', 4),
	('m24', 24, 1.5, 'orders', 0, 12, '2026-11-25 01:05:19.461+00', 4),
	('m26', 26, 1.5, 'orders', 0, 13, '2026-11-25 01:05:19.461+00', 4),
	('m28', 28, 1.5, 'orders', 0, 14, '2026-11-25 01:05:19.461+00', 4);
INSERT INTO public.payments VALUES
	('m0', 0, 1.5, 'payments', 0, 0, '2026-11-25 01:07:00.481+00', 8),
	('m2', 2, 1.5, 'payments', 0, 1, '2026-11-25 01:07:00.481+00', 8),
	('m4', 4, 1.5, 'payments', 0, 2, '2026-11-25 01:07:00.481+00', 8),
	('m6', 6, 1.5, 'payments', 0, 3, '2026-11-25 01:07:00.481+00', 8),
	('m8', 8, 1.5, 'payments', 0, 4, '2026-11-25 01:07:00.481+00', 8),
	('m1', 1, 1.5, 'payments', 1, 0, '2026-11-25 01:07:00.481+00', 8),
	('m3', 3, 1.5, 'payments', 1, 1, '2026-11-25 01:07:00.481+00', 8),
	('m5', 5, 1.5, 'payments', 1, 2, '2026-11-25 01:07:00.481+00', 8),
	('m7', 7, 1.5, 'payments', 1, 3, '2026-11-25 01:07:00.481+00', 8),
	('m9', 9, 1.5, 'payments', 1, 4, '2026-11-25 01:07:00.481+00', 8);
INSERT INTO public.refunds VALUES
	('m1', 1, 1.5, 'refunds', 1, 0, '2026-11-25 01:07:22.549+00', 10),
	('m3', 3, 1.5, 'refunds', 1, 1, '2026-11-25 01:07:22.549+00', 10),
	('m5', 5, 1.5, 'refunds', 1, 2, '2026-11-25 01:07:22.549+00', 10),
	('m7', 7, 1.5, 'refunds', 1, 3, '2026-11-25 01:07:22.549+00', 10),
	('m9', 9, 1.5, 'refunds', 1, 4, '2026-11-25 01:07:22.549+00', 10),
	('m0', 0, 1.5, 'refunds', 0, 0, '2026-11-25 01:07:22.549+00', 10),
	('m2', 2, 1.5, 'refunds', 0, 1, '2026-11-25 01:07:22.549+00', 10),
	('m4', 4, 1.5, 'refunds', 0, 2, '2026-11-25 01:07:22.549+00', 10),
	('m6', 6, 1.5, 'refunds', 0, 3, '2026-11-25 01:07:22.549+00', 10),
	('m8', 8, 1.5, 'refunds', 0, 4, '2026-11-25 01:07:22.549+00', 10);
SELECT pg_catalog.setval('batchledger.batch_batch_id_seq', 12, true);
SELECT pg_catalog.setval('batchledger.decision_decision_id_seq', 6, true);
SELECT pg_catalog.setval('batchledger.incident_incident_id_seq', 1, false);
SELECT pg_catalog.setval('batchledger.notification_notification_id_seq', 1, false);
ALTER TABLE ONLY batchledger.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (batch_id, number);
ALTER TABLE ONLY batchledger.audit_result
    ADD CONSTRAINT audit_result_pkey PRIMARY KEY (pipeline, audited_at, name);
ALTER TABLE ONLY batchledger.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (batch_id);
ALTER TABLE ONLY batchledger.batch_range
    ADD CONSTRAINT batch_range_disjoint EXCLUDE USING gist (partition WITH =, offsets WITH &&, pipeline WITH =, topic WITH =, epoch WITH =) WHERE (published_live);
ALTER TABLE ONLY batchledger.batch_range
    ADD CONSTRAINT batch_range_held_once EXCLUDE USING gist (partition WITH =, held WITH &&, pipeline WITH =, topic WITH =) WHERE ((NOT isempty(held)));
ALTER TABLE ONLY batchledger.batch_range
    ADD CONSTRAINT batch_range_pkey PRIMARY KEY (batch_id, topic, partition, offsets);
ALTER TABLE ONLY batchledger.check_result
    ADD CONSTRAINT check_result_pkey PRIMARY KEY (batch_id, attempt, name);
ALTER TABLE ONLY batchledger.decision
    ADD CONSTRAINT decision_pkey PRIMARY KEY (decision_id);
ALTER TABLE ONLY batchledger.deleted_key
    ADD CONSTRAINT deleted_key_pkey PRIMARY KEY (pipeline, key_hash);
ALTER TABLE ONLY batchledger.duplicate
    ADD CONSTRAINT duplicate_pkey PRIMARY KEY (batch_id, topic, partition, "offset");
ALTER TABLE ONLY batchledger.incident
    ADD CONSTRAINT incident_pkey PRIMARY KEY (incident_id);
ALTER TABLE ONLY batchledger.key_type
    ADD CONSTRAINT key_type_pkey PRIMARY KEY (pipeline, rule, columns);
ALTER TABLE ONLY batchledger.message_key
    ADD CONSTRAINT message_key_pkey PRIMARY KEY (pipeline, key_hash);
ALTER TABLE ONLY batchledger.migration
    ADD CONSTRAINT migration_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY batchledger.notification
    ADD CONSTRAINT notification_incident_id_channel_event_key UNIQUE (incident_id, channel, event);
ALTER TABLE ONLY batchledger.notification
    ADD CONSTRAINT notification_pkey PRIMARY KEY (notification_id);
ALTER TABLE ONLY batchledger.pipeline
    ADD CONSTRAINT pipeline_pkey PRIMARY KEY (name);
ALTER TABLE ONLY batchledger."position"
    ADD CONSTRAINT position_pkey PRIMARY KEY (pipeline, topic, partition);
ALTER TABLE ONLY batchledger.presence
    ADD CONSTRAINT presence_pkey PRIMARY KEY (batch_id);
ALTER TABLE ONLY batchledger.quarantine_kind
    ADD CONSTRAINT quarantine_kind_pkey PRIMARY KEY (pipeline, error_digest);
ALTER TABLE ONLY batchledger.quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (pipeline, topic, partition, "offset");
ALTER TABLE ONLY batchledger.replacement
    ADD CONSTRAINT replacement_pkey PRIMARY KEY (batch_id, replaced_batch_id, topic, partition, offsets);
ALTER TABLE ONLY batchledger.sequence
    ADD CONSTRAINT sequence_pkey PRIMARY KEY (pipeline, key_hash);
ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (message_id);
CREATE INDEX attempt_by_run ON batchledger.attempt USING btree (run);
CREATE INDEX batch_by_pipeline ON batchledger.batch USING btree (pipeline, batch_id DESC);
CREATE INDEX batch_by_planner ON batchledger.batch USING btree (pipeline, planned_by);
CREATE INDEX batch_by_publication ON batchledger.batch USING btree (pipeline, published_at DESC) WHERE (state = 'published'::text);
CREATE UNIQUE INDEX batch_by_request ON batchledger.batch USING btree (pipeline, request_key) WHERE (request_key IS NOT NULL);
CREATE INDEX batch_last_published ON batchledger.batch USING btree (pipeline, published_at) WHERE (lane = 'live'::text);
CREATE INDEX batch_last_replayed ON batchledger.batch USING btree (pipeline, published_at) WHERE (lane = 'replay'::text);
CREATE UNIQUE INDEX batch_one_committing ON batchledger.batch USING btree (pipeline) WHERE (state = 'committing'::text);
CREATE UNIQUE INDEX batch_one_open_live ON batchledger.batch USING btree (pipeline) WHERE ((lane = 'live'::text) AND (state <> ALL (ARRAY['published'::text, 'discarded'::text])));
CREATE INDEX batch_open_replay ON batchledger.batch USING btree (pipeline) WHERE ((lane = 'replay'::text) AND (state <> ALL (ARRAY['published'::text, 'discarded'::text])));
CREATE INDEX batch_range_by_time ON batchledger.batch_range USING gist (pipeline, timestamps) WHERE (NOT isempty(held));
CREATE INDEX batch_range_untimed ON batchledger.batch_range USING btree (pipeline) WHERE (untimed > 0);
CREATE INDEX check_result_with_validation ON batchledger.check_result USING btree (batch_id) WHERE (validation IS NOT NULL);
CREATE INDEX decision_by_batch ON batchledger.decision USING btree (batch_id);
CREATE INDEX decision_by_pipeline ON batchledger.decision USING btree (pipeline, decision_id DESC);
CREATE INDEX deleted_key_by_offset ON batchledger.deleted_key USING btree (pipeline, topic, partition, "offset");
CREATE INDEX incident_by_pipeline ON batchledger.incident USING btree (pipeline, incident_id DESC);
CREATE UNIQUE INDEX incident_one_open ON batchledger.incident USING btree (pipeline, kind, subject) WHERE (ended_at IS NULL);
CREATE INDEX message_key_by_expiry ON batchledger.message_key USING btree (pipeline, remembered_until);
CREATE INDEX notification_sent ON batchledger.notification USING btree (channel, sent_at) WHERE (sent_at IS NOT NULL);
CREATE INDEX notification_unsent ON batchledger.notification USING btree (channel, notification_id) WHERE ((sent_at IS NULL) AND (given_up_at IS NULL));
CREATE UNIQUE INDEX pipeline_owns_target ON batchledger.pipeline USING btree (target_identity);
CREATE INDEX quarantine_by_age ON batchledger.quarantine USING btree (pipeline, quarantined_at);
CREATE INDEX quarantine_of_batch ON batchledger.quarantine USING btree (batch_id);
CREATE INDEX replacement_of_range ON batchledger.replacement USING btree (replaced_batch_id, topic, partition);
CREATE INDEX orders__partition__offset_idx ON public.orders USING brin (_partition, _offset) WITH (autosummarize='on');
CREATE INDEX payments__partition__offset_idx ON public.payments USING brin (_partition, _offset) WITH (autosummarize='on');
CREATE INDEX refunds__partition__offset_idx ON public.refunds USING brin (_partition, _offset) WITH (autosummarize='on');
CREATE TRIGGER quarantine_added AFTER INSERT ON batchledger.quarantine REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION batchledger.count_quarantined();
CREATE TRIGGER quarantine_removed AFTER DELETE ON batchledger.quarantine REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION batchledger.count_quarantined();
ALTER TABLE ONLY batchledger.attempt
    ADD CONSTRAINT attempt_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.batch
    ADD CONSTRAINT batch_pipeline_fkey FOREIGN KEY (pipeline) REFERENCES batchledger.pipeline(name);
ALTER TABLE ONLY batchledger.batch_range
    ADD CONSTRAINT batch_range_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.check_result
    ADD CONSTRAINT check_result_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.decision
    ADD CONSTRAINT decision_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.decision
    ADD CONSTRAINT decision_pipeline_fkey FOREIGN KEY (pipeline) REFERENCES batchledger.pipeline(name);
ALTER TABLE ONLY batchledger.incident
    ADD CONSTRAINT incident_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.key_type
    ADD CONSTRAINT key_type_pipeline_fkey FOREIGN KEY (pipeline) REFERENCES batchledger.pipeline(name);
ALTER TABLE ONLY batchledger.notification
    ADD CONSTRAINT notification_incident_id_fkey FOREIGN KEY (incident_id) REFERENCES batchledger.incident(incident_id) ON DELETE CASCADE;
ALTER TABLE ONLY batchledger.pipeline
    ADD CONSTRAINT pipeline_pause_id_fkey FOREIGN KEY (pause_id) REFERENCES batchledger.decision(decision_id);
ALTER TABLE ONLY batchledger."position"
    ADD CONSTRAINT position_pipeline_fkey FOREIGN KEY (pipeline) REFERENCES batchledger.pipeline(name);
ALTER TABLE ONLY batchledger.quarantine
    ADD CONSTRAINT quarantine_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.quarantine_kind
    ADD CONSTRAINT quarantine_kind_pipeline_fkey FOREIGN KEY (pipeline) REFERENCES batchledger.pipeline(name);
ALTER TABLE ONLY batchledger.quarantine
    ADD CONSTRAINT quarantine_pipeline_fkey FOREIGN KEY (pipeline) REFERENCES batchledger.pipeline(name);
ALTER TABLE ONLY batchledger.replacement
    ADD CONSTRAINT replacement_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batchledger.batch(batch_id);
ALTER TABLE ONLY batchledger.replacement
    ADD CONSTRAINT replacement_replaced_batch_id_fkey FOREIGN KEY (replaced_batch_id) REFERENCES batchledger.batch(batch_id);
