-- Keys of the installation. The key `cookies` signs what browsers keep; all server processes share it.
create table hw_key (
  name text primary key,
  secret text not null,
  made_at bigint not null
);
