-- Tenants, tokens, and the answers that were given under a key before.

-- An inactive tenant's tokens are refused, its queue stands, its ticks are skipped. Limits: null is none.
alter table hw_tenant add column active smallint not null default 1 check (active in (0, 1));
alter table hw_tenant add column max_queued bigint check (max_queued >= 0);
alter table hw_tenant add column max_running bigint check (max_running >= 0);
alter table hw_tenant add column max_schedules bigint check (max_schedules >= 0);

-- Every claim looks for these; there may be many other tenants.
create index hw_tenant_stopped on hw_tenant (id) where active = 0 or paused_at is not null;
create index hw_tenant_bounded on hw_tenant (id) where max_running is not null;

-- The number of a tenant's last turn to be claimed from; by 0, the last number that was given. Written under the claim
-- lock alone, and only while several tenants have work.
create table hw_turn (
  tenant_id {pkp},
  turn bigint not null
);

-- A token is stored as its hash and shown once. Without a tenant it is the system's: it may act for every tenant.
create table hw_token (
  id {pk},
  tenant_id bigint references hw_tenant (id),
  name text not null,
  role text not null check (role in ('viewer', 'operator', 'admin')),
  hash text not null unique,
  hint text not null,
  created_at bigint not null,
  created_by text not null,
  expires_at bigint,
  revoked_at bigint,
  version integer not null default 1
);

-- One answer for each Idempotency-Key of a tenant and route. Written in the transaction that makes the thing (`made`
-- is what it made, as JSON), completed with the answer once that is known.
create table hw_answer (
  tenant_id bigint not null,
  route text not null,
  key text not null,
  digest text not null,
  made text not null,
  status integer,
  headers text,
  body text,
  at bigint not null,
  primary key (tenant_id, route, key)
);
create index hw_answer_at on hw_answer (at);
