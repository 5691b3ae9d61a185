"""Jobs and runs in the local database, as the API's JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.api.schemas.jobs import chain_json, event_json, explain_json, job_json, line_json, run_json
from headway.cli.backend.base import LOOK_SECONDS, FollowedJob, every, fill, over
from headway.cli.output import Json
from headway.engine.client.limits import lives
from headway.errors import NotFound
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.store import worker_views
from headway.store.jobs import changes as jobs
from headway.store.jobs import views as job_views
from headway.store.jobs.views import LogLine
from headway.store.paging import MAX_LIMIT, job_rows
from headway.store.queue import queue_views

if TYPE_CHECKING:
    from headway.cli.backend.local import LocalBackend


class LocalJobs:
    """Jobs and runs in the local database."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend

    # --- reading ---

    def page(self, wanted: JobFilter, limit: int, cursor: str | None) -> Json:
        def read(count: int, cursor: str | None) -> Json:
            with self.backend.read() as tx:
                page = job_views.list_jobs(tx, self.backend.tenant_id, wanted, count, cursor)
            return {"items": [job_json(view) for view in page.items], "next": page.next}

        return fill(read, limit, cursor)

    def runs(self, wanted: JobFilter, limit: int, cursor: str | None) -> Json:
        def read(count: int, cursor: str | None) -> Json:
            with self.backend.read() as tx:
                page = job_views.list_runs(tx, self.backend.tenant_id, wanted, count, cursor)
            return {"items": [run_json(run) for run in page.items], "next": page.next}

        return fill(read, limit, cursor)

    def numbers(self, wanted: JobFilter, *, unretried: bool) -> list[int]:
        def read(cursor: str | None) -> Json:
            with self.backend.read() as tx:
                rows = job_rows(tx, self.backend.tenant_id, wanted, MAX_LIMIT, cursor)
                ids = [job.id for job in rows.items]
                retried = job_views.retried(tx, ids) if unretried else set()
            return {"items": [job_id for job_id in ids if job_id not in retried], "next": rows.next}

        return every(read)

    def get(self, job_id: int) -> Json:
        with self.backend.read() as tx:
            return job_json(job_views.view(tx, self.backend.tenant_id, job_id))

    def many(self, ids: Sequence[int]) -> list[Json]:
        with self.backend.read() as tx:
            return [job_json(view) for view in job_views.views_of(tx, self.backend.tenant_id, ids)]

    def shown(self, job_id: int) -> Json:
        with self.backend.read() as tx:
            view, events = job_views.view(tx, self.backend.tenant_id, job_id), job_views.events(tx, job_id)
        return {**job_json(view), "events": [event_json(event) for event in events]}

    def chain(self, job_id: int, limit: int, cursor: str | None) -> Json:
        with self.backend.read() as tx:
            return chain_json(job_views.chain_page(tx, self.backend.tenant_id, job_id, limit, cursor), job_id)

    def run(self, run_id: int) -> Json:
        with self.backend.read() as tx:
            found = jobs.run_of(tx, run_id)
        if found is None or found.tenant_id != self.backend.tenant_id:
            raise NotFound(f"there is no run {run_id}", hint="see `headway runs ls`")
        return run_json(found)

    def explain(self, job_id: int) -> Json:
        with self.backend.read() as tx:
            return explain_json(queue_views.explain(tx, self.backend.tenant_id, job_id, lives=lives))

    def is_lost(self, job_id: int) -> bool:
        with self.backend.read() as tx:
            job, owner = jobs.find(tx, job_id, self.backend.tenant_id), worker_views.owner(tx, job_id)
        return job.status is State.RUNNING and (owner is None or not lives(owner))

    # --- creating and changing ---

    def make(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Json, bool]:
        job_id, created = self.backend.enqueue(task, params, options)
        return self.get(job_id), created

    def make_of_template(
        self, template: int | str, params: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Json, bool]:
        client = self.backend.client
        job_id, created = client.enqueue(client.templates.job(template, params, **options))
        return self.get(job_id), created

    def batch(self, body: Json) -> Json:
        from headway.cli.backend.local_batch import create_jobs

        group_id, ids = create_jobs(self.backend.client, body)
        if group_id is not None:
            ids = [step["job_id"] for step in self.backend.groups.get(group_id)["steps"]]
        return {"group_id": group_id, "items": self.many(ids)}

    def artifacts(self, job_id: int) -> Json:
        from headway.api.schemas.system import artifact_json

        self.backend.client.get(job_id)
        with self.backend.read() as tx:
            return {"items": [artifact_json(found) for found in job_views.artifacts(tx, job_id)], "next": None}

    def download(self, job_id: int, name: str) -> bytes:
        from headway.engine.execution.artifacts import place_of

        self.backend.client.get(job_id)
        with self.backend.read() as tx:
            paths = {found.name: found.path for found in job_views.artifacts(tx, job_id)}
        if name not in paths:
            raise NotFound(f"job {job_id} has no file {name!r}", hint=f"see `headway jobs artifacts {job_id}`")
        place = place_of(self.backend.settings.artifacts, paths[name])
        try:
            return place.read_bytes() if place is not None else b""
        except OSError as error:
            raise NotFound(f"the file {name!r} of job {job_id} cannot be read: {error.strerror}", code="gone") from None

    def cancel(self, job_id: int) -> int:
        return self.backend.client.cancel(job_id).id

    def interrupt(self, job_id: int) -> int:
        return self.backend.client.interrupt(job_id).id

    def release(self, job_id: int) -> int:
        return self.backend.client.release(job_id).id

    def resume(self, job_id: int, budget: Mapping[str, float] | None) -> int:
        return self.backend.client.resume(job_id, budget).id

    def resolve(self, job_id: int, result: object) -> int:
        return self.backend.client.resolve(job_id, result).id

    def retry(self, job_id: int, *, again: bool = True, **fields: Any) -> int:
        return self.backend.client.retry(job_id, again=again, **fields).id

    def edit(self, job_id: int, *, if_version: int | None = None, **fields: Any) -> int:
        return self.backend.client.edit(job_id, if_version=if_version, **fields).id

    def move(self, job_id: int, **place: Any) -> int:
        return self.backend.client.move(job_id, **place).id

    # --- watching ---

    def follow(self, job_id: int) -> Iterator[FollowedJob]:
        """Yields the states of a job without end; the caller stops. Each state is read in one transaction."""
        chunk = 0
        while True:
            with self.backend.read() as tx:
                view = job_views.view(tx, self.backend.tenant_id, job_id)
                lines = job_views.log_lines(tx, job_id, after=chunk)
                retry = jobs.automatic_retry(tx, job_id) if view.job.status is State.FAILED else None
                after = job_views.view(tx, self.backend.tenant_id, retry.id) if retry is not None else None
            chunk = lines[-1].chunk if lines else chunk
            yield FollowedJob(job_json(view), _json(lines), None if after is None else job_json(after))
            time.sleep(LOOK_SECONDS)

    def log(self, job_id: int, tail: int | None) -> tuple[list[Json], int]:
        with self.backend.read() as tx:
            lines = job_views.log_lines(tx, job_id) if tail is None else job_views.last_lines(tx, job_id, tail)
            end = lines or job_views.last_lines(tx, job_id, 1)
        return _json(lines), end[-1].chunk if end else 0

    def more_lines(self, job_id: int, after: int, *, follow: bool) -> Iterator[list[Json]]:
        while True:
            ended = self.backend.client.get(job_id).status.terminal  # read before the log, which is then complete
            with self.backend.read() as tx:
                lines = job_views.log_lines(tx, job_id, after=after)
            if lines:
                after = lines[-1].chunk
                yield _json(lines)
            elif ended or not follow:
                return
            else:
                time.sleep(LOOK_SECONDS)

    def wait(self, job_id: int, deadline: float | None) -> Json:
        while True:
            with self.backend.read() as tx:
                last = job_views.last_of_chain(tx, self.backend.tenant_id, job_id)
            if over(last.status.name) or (deadline is not None and time.monotonic() >= deadline):
                return self.get(last.id)
            time.sleep(LOOK_SECONDS)


def _json(lines: Sequence[LogLine]) -> list[Json]:
    return [line_json(line) for line in lines]
