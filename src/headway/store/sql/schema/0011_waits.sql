-- Which claims wait for the end of a job: `job_id` and `fence` of the claim, or 0 and the number of a direct call's reservation.
-- A row counts while its claim stands. One that a killed process left says nothing, and goes when its job is pruned.
create table hw_wait (
  job_id bigint not null,
  fence bigint not null,
  awaited_id bigint not null,
  primary key (job_id, fence)
);
