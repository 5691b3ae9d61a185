-- Webhooks: the endpoints and their events, the deliveries under way, and the outcome of each try.

-- `events` is JSON: names or prefixes with `*`; none means all. While the breaker is open, `probe_at` is when one
-- delivery is tried again. Deleted endpoints stay for their deliveries.
create table hw_endpoint (
  id {pk},
  tenant_id bigint not null references hw_tenant (id),
  url text not null,
  events text not null,
  description text,
  secret text not null,
  old_secret text,
  old_until bigint,
  max_tries integer not null check (max_tries between 1 and 20),
  enabled smallint not null default 1 check (enabled in (0, 1)),
  reason text,
  failures integer not null default 0,
  opened_at bigint,
  probe_at bigint,
  created_at bigint not null,
  created_by text not null,
  deleted_at bigint,
  version integer not null default 1,
  check ((opened_at is null) = (probe_at is null)),
  check ((old_secret is null) = (old_until is null))
);
create index hw_endpoint_live on hw_endpoint (tenant_id, id) where deleted_at is null;

-- The secrets that sign the deliveries to addresses that jobs bring themselves, one for each tenant.
create table hw_signer (
  tenant_id {pkp},
  secret text not null,
  old_secret text,
  old_until bigint,
  check ((old_secret is null) = (old_until is null))
);

-- The work of the outbox, a trigger on events: how many endpoints there are, and whether a job ever brought an
-- address of its own.
create table hw_outbox (
  endpoints integer not null,
  jobs smallint not null
);
insert into hw_outbox (endpoints, jobs) values (0, 0);

-- One event on its way to one receiver: endpoint 0 is the `url` of the job itself. Made by a trigger, in the transaction
-- of the event. `body` and `message_id` are set once, before the first try. A delivery that is being sent has a
-- `lease_by`, and `due_at` is when another process may take it for lost.
create table hw_delivery (
  id {pk},
  tenant_id bigint not null,
  endpoint_id bigint not null,
  event_id bigint not null,
  event text not null,
  job_id bigint,
  url text,
  message_id text,
  body text,
  status text not null default 'PENDING' check (status in ('PENDING', 'DELIVERED', 'FAILED')),
  tries integer not null default 0,
  lost integer not null default 0,
  max_tries integer not null,
  due_at bigint,
  lease_by text,
  fence integer not null default 0,
  last_status_code integer,
  last_error text,
  replay_of bigint,
  created_at bigint not null,
  delivered_at bigint,
  finished_at bigint,
  version integer not null default 0,
  check (tries <= max_tries),
  check ((status = 'PENDING') = (finished_at is null)),
  check ((status = 'PENDING') = (due_at is not null)),
  check ((status = 'DELIVERED') = (delivered_at is not null)),
  check (status = 'PENDING' or lease_by is null),
  check ((body is null) = (message_id is null)),
  check ((endpoint_id = 0) = (url is not null))
);
create unique index hw_delivery_once on hw_delivery (event_id, endpoint_id, event) where replay_of is null;
create index hw_delivery_due on hw_delivery (endpoint_id, due_at, id) where status = 'PENDING';
create index hw_delivery_oldest on hw_delivery (endpoint_id, id) where status = 'PENDING';
create index hw_delivery_leased on hw_delivery (id) where lease_by is not null;
create index hw_delivery_list on hw_delivery (endpoint_id, id);
create index hw_delivery_job on hw_delivery (job_id, id) where job_id is not null;
create index hw_delivery_finished on hw_delivery (finished_at, id) where finished_at is not null;

-- `digest` is of the bytes that were sent. `request` and `response` are JSON.
create table hw_try (
  delivery_id bigint not null,
  number integer not null,
  tenant_id bigint not null,
  at bigint not null,
  took bigint not null,
  status_code integer,
  error text,
  address text,
  message_id text not null,
  digest text not null,
  request text not null,
  response text,
  primary key (delivery_id, number)
);
