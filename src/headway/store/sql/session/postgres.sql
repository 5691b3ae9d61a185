-- Statements that begin a session. Names are written out in full, because the search path is not known yet.

-- name: look
-- Headway's schema is the one with the record of migrations; before the first migration, the one in which tables are
-- created, but never a temporary one. With a search path of that schema alone, tables of the same name in other schemas and temporary tables are
-- not found; pg_catalog always comes first.
select (
    select pg_catalog.quote_ident(n.nspname) || ', pg_temp' from pg_catalog.pg_namespace n
    where n.nspname operator(pg_catalog.=) coalesce((
      select h.nspname from pg_catalog.pg_class c join pg_catalog.pg_namespace h on h.oid operator(pg_catalog.=) c.relnamespace
      where c.oid operator(pg_catalog.=) pg_catalog.to_regclass('hw_schema') and c.relpersistence operator(pg_catalog.<>) 't'),
      pg_catalog.current_schema())
    and n.oid operator(pg_catalog.<>) pg_catalog.pg_my_temp_schema()),
  pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('session_replication_role'),
  exists (
    select from pg_catalog.pg_settings s
    where s.name operator(pg_catalog.=) any (array['statement_timeout', 'idle_session_timeout', 'transaction_timeout'])
    and s.reset_val operator(pg_catalog.<>) '0');

-- name: path
select pg_catalog.current_setting('search_path'), pg_catalog.quote_ident(current_user);

-- name: settle
-- Sets nothing and returns no row if the server's session is another one than the client was told.
select pg_catalog.count(pg_catalog.set_config(s.key, s.value, false)) from pg_catalog.jsonb_each_text(%(settings)s::pg_catalog.jsonb) s
where pg_catalog.pg_backend_pid() operator(pg_catalog.=) %(pid)s having pg_catalog.pg_backend_pid() operator(pg_catalog.=) %(pid)s;

-- name: settle_transaction
select pg_catalog.count(pg_catalog.set_config(s.key, s.value, true)) from pg_catalog.jsonb_each_text(%(settings)s::pg_catalog.jsonb) s;

-- name: take_path
select pg_catalog.set_config('headway.path', pg_catalog.current_setting('search_path'), true),
  pg_catalog.set_config('search_path', coalesce(%(path)s, pg_catalog.current_setting('search_path')), true);

-- name: give_back_path
select pg_catalog.set_config('search_path', pg_catalog.current_setting('headway.path'), true);
