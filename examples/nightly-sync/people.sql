create table person (id integer primary key, name text not null, email text not null, active integer not null default 1);
insert into person (name, email, active) values
  ('Ada', 'ada@example.com', 1), ('Grace', 'grace@example.com', 1), ('Alan', 'alan@example.com', 0), ('Edsger', 'edsger@example.com', 1);
create table sync (id integer primary key, at text not null default current_timestamp);
