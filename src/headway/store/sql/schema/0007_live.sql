-- How far back the history is whole: of things that ended before this instant some were pruned, with their events.
alter table hw_pruning add column pruned_until bigint not null default 0;
