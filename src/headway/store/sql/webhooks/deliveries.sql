-- Webhooks: endpoints, pending deliveries, and their tries.

-- name: outbox
-- The number of endpoints, and whether a job ever had a webhook of its own.
select endpoints, jobs from hw_outbox;

-- name: lock_outbox
select endpoints, jobs from hw_outbox {for_update};

-- name: count_endpoints
-- Runs after `lock_outbox`, because a statement's snapshot is older than any lock it waits for.
update hw_outbox set endpoints = (select count(*) from hw_endpoint where deleted_at is null);

-- name: note_job_hooks
update hw_outbox set jobs = 1 where jobs = 0;

-- name: add_endpoint
insert into hw_endpoint (tenant_id, url, events, description, secret, max_tries, created_at, created_by)
values (:tenant_id, :url, :events, cast(:description as text), :secret, :max_tries, {now}, :actor) returning id;

-- name: endpoint_by_id
select {endpoint_columns} from hw_endpoint e where e.id = :id;

-- name: lock_endpoints
select {endpoint_columns} from hw_endpoint e where e.id in {ids} order by e.id {for_update};

-- name: endpoints_after
-- A tenant's endpoints in the order of their creation.
select {endpoint_columns} from hw_endpoint e where e.tenant_id = :tenant_id and e.deleted_at is null and e.id > :after
order by e.id limit :limit;

-- name: deleted_endpoints
-- A tenant's deleted endpoints in the order of their creation.
select {endpoint_columns} from hw_endpoint e where e.tenant_id = :tenant_id and e.deleted_at is not null and e.id > :after
order by e.id limit :limit;

-- name: endpoints_of
select {endpoint_columns} from hw_endpoint e where e.id in {ids};

-- name: save_endpoint
update hw_endpoint set url = :url, events = :events, description = cast(:description as text), secret = :secret,
  old_secret = cast(:old_secret as text), old_until = cast(:old_until as bigint), max_tries = :max_tries, enabled = :enabled,
  reason = cast(:reason as text), failures = :failures, opened_at = cast(:opened_at as bigint), probe_at = cast(:probe_at as bigint),
  deleted_at = cast(:deleted_at as bigint), version = :version
where id = :id;

-- name: set_probe
update hw_endpoint set probe_at = :probe_at where id = :id;

-- name: signers_of
select tenant_id, secret, old_secret, old_until from hw_signer where tenant_id in {ids};

-- name: add_signer
insert into hw_signer (tenant_id, secret) values (:tenant_id, :secret) on conflict (tenant_id) do nothing;

-- name: rotate_signer
-- Idempotent: when repeated, the previous secret keeps signing.
update hw_signer set old_secret = secret, old_until = {now} + :keeps, secret = :secret where tenant_id = :tenant_id and secret <> :secret;

-- name: pending_endpoints
-- Endpoints with pending deliveries, found by stepping from one to the next: the cost grows with the endpoints, not
-- with the deliveries.
with recursive k(id) as (
  select min(endpoint_id) from hw_delivery where status = 'PENDING' and endpoint_id > 0
  union all
  select (select min(d.endpoint_id) from hw_delivery d where d.status = 'PENDING' and d.endpoint_id > k.id) from k where k.id is not null
)
select k.id, case when e.id is null then 1 when e.deleted_at is null then e.enabled else 0 end, e.probe_at,
  (select min(d.due_at) from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = k.id),
  (select d.created_at from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = k.id order by d.id limit 1), {now}
from k left join hw_endpoint e on e.id = k.id where k.id is not null;

-- name: pending_addresses
-- The same for hosts from jobs' own webhooks, by tenant and host, after a given host.
with recursive k(id, n) as (
  select coalesce(
    (select d.id from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id = :tenant_id + 0
       and {address(d.url)} > cast(:host as text) || '' order by d.tenant_id, {address(d.url)} limit 1),
    (select d.id from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id > :tenant_id + 0
     order by d.tenant_id, {address(d.url)} limit 1)), 1
  union all
  select coalesce(
    (select d.id from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id = c.tenant_id
       and {address(d.url)} > {address(c.url)} order by d.tenant_id, {address(d.url)} limit 1),
    (select d.id from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id > c.tenant_id
     order by d.tenant_id, {address(d.url)} limit 1)), k.n + 1
  from k join hw_delivery c on c.id = k.id where k.n < :limit
)
select (select min(d.due_at) from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id = c.tenant_id
    and {address(d.url)} = {address(c.url)}),
  (select d.created_at from hw_delivery d where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id = c.tenant_id
    and {address(d.url)} = {address(c.url)} order by d.due_at, d.id limit 1), {now}, c.tenant_id, {address(c.url)}
from k join hw_delivery c on c.id = k.id;

-- name: due_at_address
select {delivery_columns} from hw_delivery d
where d.status = 'PENDING' and d.endpoint_id = 0 and d.tenant_id = :tenant_id + 0 and {address(d.url)} = cast(:host as text) || ''
  and d.due_at <= {now} order by d.due_at, d.id limit :limit {skip_locked};

-- name: due_deliveries
select {delivery_columns} from hw_delivery d
where d.status = 'PENDING' and d.endpoint_id = :endpoint_id and d.due_at > 0 and d.due_at <= {now}
order by d.due_at, d.id limit :limit {skip_locked};

-- name: delivery_ahead
-- A test delivery that was not sent yet, whatever else waits there and whether or not the circuit breaker is open.
select {delivery_columns} from hw_delivery d
where d.status = 'PENDING' and d.endpoint_id = :endpoint_id and d.due_at = 0 order by d.id limit 1 {skip_locked};

-- name: oldest_delivery
-- The oldest delivery, for a probe, whether or not its next try is due. Leased deliveries and unsent tests are left
-- out.
select {delivery_columns} from hw_delivery d
where d.status = 'PENDING' and d.endpoint_id = :endpoint_id and (d.lease_by is null or d.due_at <= {now}) and d.due_at > 0
order by d.id limit 1 {skip_locked};

-- name: stale_deliveries
-- The oldest pending deliveries from before an instant that no process has leased.
select {delivery_columns} from hw_delivery d
where d.status = 'PENDING' and d.endpoint_id = :endpoint_id and d.created_at < :before and (d.lease_by is null or d.due_at <= {now})
order by d.id limit :limit {skip_locked};

-- name: leased_deliveries
select id, lease_by from hw_delivery where lease_by is not null order by id;

-- name: lock_deliveries
select {delivery_columns} from hw_delivery d where d.id in {ids} order by d.id {for_update};

-- name: deliveries_by_id
select {delivery_columns} from hw_delivery d where d.id in {ids};

-- name: lease_deliveries
update hw_delivery set lease_by = :who, fence = fence + 1, due_at = {now} + :lease where id in {ids};

-- name: return_deliveries
-- Nothing was sent under these leases: neither a try nor a loss is counted.
update hw_delivery set lease_by = null, due_at = {now} where id in {ids} and lease_by = :who;

-- name: store_bodies
-- The body that every try sends; a second rendering changes nothing.
update hw_delivery set body = r.body, message_id = r.message_id
from {rows(id bigint, fence integer, message_id text, body text)} as r
where hw_delivery.id = r.id and hw_delivery.fence = r.fence and hw_delivery.body is null;

-- name: save_deliveries
update hw_delivery set status = r.status, tries = r.tries, lost = r.lost, due_at = r.due_at, lease_by = null,
  last_status_code = r.last_status_code, last_error = r.last_error, delivered_at = r.delivered_at, finished_at = r.finished_at,
  version = r.version
from {rows(id bigint, status text, tries integer, lost integer, due_at bigint, last_status_code integer, last_error text, delivered_at bigint, finished_at bigint, version integer)} as r
where hw_delivery.id = r.id;

-- name: add_tries
insert into hw_try (delivery_id, number, tenant_id, at, took, status_code, error, address, message_id, digest, request, response)
select delivery_id, number, tenant_id, at, took, status_code, error, address, message_id, digest, request, response
from {rows(delivery_id bigint, number integer, tenant_id bigint, at bigint, took bigint, status_code integer, error text, address text, message_id text, digest text, request text, response text)} as r;

-- name: add_test
-- A delivery that a person requested: due at 0, so its first try goes ahead of all pending ones.
insert into hw_delivery (tenant_id, endpoint_id, event_id, event, max_tries, due_at, created_at)
select e.tenant_id, e.id, v.id, :event, e.max_tries, 0, {now}
from hw_endpoint e join hw_event v on v.thing_id = e.id and v.thing = 'webhook' and v.version = e.version
where e.id = :endpoint_id returning id;

-- name: replay_delivery
-- The same message again, with tries of its own.
insert into hw_delivery (tenant_id, endpoint_id, event_id, event, job_id, url, message_id, body, max_tries, due_at, replay_of, created_at)
select tenant_id, endpoint_id, event_id, event, job_id, url, message_id, body, :max_tries, {now}, id, {now}
from hw_delivery where id = :id returning id;

-- name: set_delivery_version
update hw_delivery set version = :version where id = :id;

-- name: walk_deliveries
-- The newest deliveries of all tenants. No index covers a single tenant's, and a walk past the others is bounded too.
select id from hw_delivery where id < :before order by id desc limit :limit;

-- name: walk_deliveries_to
select id from hw_delivery where endpoint_id = :endpoint_id and id < :before order by id desc limit :limit;

-- name: walk_deliveries_about
select id from hw_delivery where job_id = :job_id and job_id is not null and id < :before order by id desc limit :limit;

-- name: pick_deliveries
-- Those of these deliveries that match.
select {delivery_columns} from hw_delivery d where d.id in {ids} and d.tenant_id = :tenant_id
  and (cast(:status as text) is null or d.status = :status)
  and (cast(:event as text) is null or d.event = :event)
order by d.id desc limit :limit;

-- name: last_deliveries
-- The latest deliveries to each of these endpoints.
select i.id, d.id, d.event, d.status, d.created_at, d.last_error from {ids} i join hw_delivery d on d.id in (
  select n.id from hw_delivery n where n.endpoint_id = i.id order by n.id desc limit :limit)
order by i.id, d.id desc;

-- name: tries_of
select number, at, took, status_code, error, address, message_id, digest, request, response from hw_try
where delivery_id = :delivery_id order by number;

-- name: event_by_id
select id, kind, thing, thing_id, version, status, at, actor, fence, data, tenant_id from hw_event where id = :id;

-- name: tick_by_id
select {tick_columns} from hw_tick t where t.id = :id;

-- name: prunable_deliveries
-- Deliveries that ended before the cutoff, oldest first, after a given one, and whether they may go: while their event
-- exists, `verify` expects them. The event of a test stays in its endpoint's history. The newest delivery stays,
-- because SQLite would reuse its number and a receiver would take the next delivery for a repetition.
select d.finished_at, d.id, case when d.id = (select max(id) from hw_delivery) then 0 when d.event = 'webhook.test' or not exists (select 1 from hw_event v where v.id = d.event_id) then 1 else 0 end
from hw_delivery d where d.finished_at is not null and d.finished_at < :before
  and d.finished_at >= :after_at and (d.finished_at > :after_at or d.id > :after_id)
order by d.finished_at, d.id limit :limit;

-- name: prune_deliveries
insert into hw_tally (tenant_id, name, count) select d.tenant_id, 'deliveries', count(*) from hw_delivery d where d.id in {ids}
  and d.finished_at is not null and (d.event = 'webhook.test' or not exists (select 1 from hw_event v where v.id = d.event_id))
group by d.tenant_id
on conflict (tenant_id, name) do update set count = hw_tally.count + excluded.count;
delete from hw_event where thing = 'delivery' and thing_id in (select d.id from hw_delivery d where d.id in {ids}
  and d.finished_at is not null and (d.event = 'webhook.test' or not exists (select 1 from hw_event v where v.id = d.event_id)));
delete from hw_try where delivery_id in (select d.id from hw_delivery d where d.id in {ids}
  and d.finished_at is not null and (d.event = 'webhook.test' or not exists (select 1 from hw_event v where v.id = d.event_id)));
delete from hw_delivery where id in {ids} and finished_at is not null
  and (event = 'webhook.test' or not exists (select 1 from hw_event v where v.id = hw_delivery.event_id)) returning id;

-- name: failing_endpoints
-- A tenant's webhooks whose last tries failed; open circuit breakers come first.
select {endpoint_columns} from hw_endpoint e where e.tenant_id = :tenant_id and e.deleted_at is null and e.enabled = 1 and e.failures > 0
order by e.opened_at is null, e.opened_at, e.id limit :limit;
