-- Tokens, browser sessions, the key of cookies, and the answers stored under idempotency keys.

-- name: add_token
insert into hw_token (tenant_id, name, role, hash, hint, created_at, created_by, expires_at)
values (cast(:tenant_id as bigint), :name, :role, :hash, :hint, {now}, :actor, cast(:expires_at as bigint))
on conflict (hash) do nothing returning id;

-- name: token_by_id
select {token_columns} from hw_token t left join hw_tenant n on n.id = t.tenant_id where t.id = :id;

-- name: token_by_hash
-- A live token with its hash. Revoked and expired tokens, and those of inactive tenants, are not live.
select {token_columns}, t.hash from hw_token t left join hw_tenant n on n.id = t.tenant_id
where t.hash = :hash and t.revoked_at is null and (t.expires_at is null or t.expires_at > {now}) and (n.id is null or n.active = 1);

-- name: live_tokens
-- Those of these tokens that are live.
select t.id from hw_token t left join hw_tenant n on n.id = t.tenant_id
where t.id in {ids} and t.revoked_at is null and (t.expires_at is null or t.expires_at > {now}) and (n.id is null or n.active = 1);

-- name: any_token
-- Returns a row if a token exists that was not revoked. Expired tokens and those of inactive tenants count, because
-- neither must open the API to requests without a token.
select 1 from hw_token where revoked_at is null limit 1;

-- name: tokens_after
-- Tokens in the order of their creation, of all tenants or of one.
select {token_columns} from hw_token t left join hw_tenant n on n.id = t.tenant_id
where t.id > :after and (:everywhere = 1 or t.tenant_id = :tenant_id) order by t.id limit :limit;

-- name: revoke_token
update hw_token set revoked_at = {now}, version = version + 1 where id = :id and revoked_at is null returning version;

-- name: add_session
insert into hw_session (hash, token_id, created_at, expires_at) values (:hash, :token_id, {now}, {now} + :lasts)
on conflict (hash) do nothing;

-- name: drop_sessions
-- Ends the oldest sessions of a token beyond the newest `most`.
delete from hw_session where id in (
  select s.id from hw_session s where s.token_id = :token_id order by s.id desc limit :limit offset :most
);

-- name: token_by_session
-- The live token of a session that has not ended, with the session's hash.
select {token_columns}, s.hash from hw_session s join hw_token t on t.id = s.token_id left join hw_tenant n on n.id = t.tenant_id
where s.hash = :hash and s.expires_at > {now}
  and t.revoked_at is null and (t.expires_at is null or t.expires_at > {now}) and (n.id is null or n.active = 1);

-- name: live_sessions
-- Those of these sessions that have not ended. `live_tokens` checks their tokens.
select s.hash from {rows(hash text)} as r join hw_session s on s.hash = r.hash where s.expires_at > {now};

-- name: end_session
delete from hw_session where hash = :hash;

-- name: ended_session
select 1 from hw_session where expires_at <= {now} limit 1;

-- name: prune_sessions
delete from hw_session where id in (select s.id from hw_session s where s.expires_at <= {now} order by s.expires_at limit :limit)
returning 1;

-- name: cookie_key
select secret from hw_key where name = 'cookies';

-- name: add_cookie_key
-- A transaction that makes the key at the same time is waited for.
insert into hw_key (name, secret, made_at) values ('cookies', :secret, {now}) on conflict (name) do nothing;

-- name: take_key
-- Takes a key that is unused or too old. While another transaction takes it, this one waits for that one's end.
insert into hw_answer (tenant_id, route, key, digest, made, at) values (:tenant_id, :route, :key, :digest, 'null', {now})
on conflict (tenant_id, route, key) do update
set digest = excluded.digest, made = 'null', status = null, headers = null, body = null, at = excluded.at
where hw_answer.at < excluded.at - :kept
returning 1;

-- name: answer
select digest, made, status, headers, body from hw_answer
where tenant_id = :tenant_id and route = :route and key = :key and at >= {now} - :kept;

-- name: save_made
update hw_answer set made = :made where tenant_id = :tenant_id and route = :route and key = :key;

-- name: complete_answer
-- The first answer stays.
update hw_answer set status = :status, headers = :headers, body = :body
where tenant_id = :tenant_id and route = :route and key = :key and digest = :digest and status is null;

-- name: old_answer
select 1 from hw_answer where at < {now} - :kept limit 1;

-- name: prune_answers
delete from hw_answer where (tenant_id, route, key) in
  (select a.tenant_id, a.route, a.key from hw_answer a where a.at < {now} - :kept order by a.at limit :limit)
returning 1;
