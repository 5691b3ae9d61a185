-- Why a worker takes no work, or why it was ended.
alter table hw_worker add column note text;
