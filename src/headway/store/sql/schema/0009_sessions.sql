-- Browsers that logged in with a token. Like the token, a session is stored as its hash; it opens what its token
-- opens, for as long as both live.
create table hw_session (
  id {pk},
  hash text not null unique,
  token_id bigint not null references hw_token (id) on delete cascade,
  created_at bigint not null,
  expires_at bigint not null
);
create index hw_session_expires on hw_session (expires_at);
