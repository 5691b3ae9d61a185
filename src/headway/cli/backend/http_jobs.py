"""Jobs and runs over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.cli.backend.base import FollowedJob, every, fill, over
from headway.cli.backend.connection import Link, given, part
from headway.cli.output import Json
from headway.errors import BadInput, NotFound
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.model.values.times import instant_text
from headway.store.paging import MAX_LIMIT, check_limit

if TYPE_CHECKING:
    from headway.cli.backend.http import HttpBackend

JOBS, RUNS = "/api/jobs", "/api/job-runs"
MOST_TAIL = 1_000


class HttpJobs:
    """Jobs and runs over HTTP."""

    def __init__(self, backend: HttpBackend) -> None:
        self.backend = backend
        self.link: Link = backend.link

    # --- reading ---

    def page(self, wanted: JobFilter, limit: int, cursor: str | None) -> Json:
        return fill(lambda count, cursor: self._page(JOBS, wanted, count, cursor), limit, cursor)

    def runs(self, wanted: JobFilter, limit: int, cursor: str | None) -> Json:
        return fill(lambda count, cursor: self._page(RUNS, wanted, count, cursor), limit, cursor)

    def _page(self, path: str, wanted: JobFilter, limit: int, cursor: str | None, **more: Any) -> Json:
        return self.link.get(path, **wanted.to_query(), limit=check_limit(limit), cursor=cursor, **more)

    def numbers(self, wanted: JobFilter, *, unretried: bool) -> list[int]:
        more = {"retried": False} if unretried else {}

        def read(cursor: str | None) -> Json:
            page = self._page(JOBS, wanted, MAX_LIMIT, cursor, **more)
            return {"items": [job["job_id"] for job in page["items"]], "next": page["next"]}

        return every(read)

    def get(self, job_id: int) -> Json:
        return self.link.get(f"{JOBS}/{job_id}")

    def many(self, ids: Sequence[int]) -> list[Json]:
        return [self.get(job_id) for job_id in ids]

    def shown(self, job_id: int) -> Json:
        return {**self.get(job_id), "events": self.link.events(f"{JOBS}/{job_id}")}

    def chain(self, job_id: int, limit: int, cursor: str | None) -> Json:
        return self.link.get(f"{JOBS}/{job_id}/chain", limit=check_limit(limit), cursor=cursor)

    def run(self, run_id: int) -> Json:
        try:
            return self.link.get(f"{RUNS}/{run_id}")
        except NotFound:
            raise NotFound(f"there is no run {run_id}", hint="see `headway runs ls`") from None

    def explain(self, job_id: int) -> Json:
        return self.link.get(f"{JOBS}/{job_id}/explain")

    def is_lost(self, job_id: int) -> bool:
        alive = [worker for worker in self.backend.workers()["items"] if worker["state"] != "gone"]
        if any(job["job_id"] == job_id for worker in alive for job in worker["running"]):
            return False
        return bool(self.get(job_id)["status"] == "RUNNING")  # it may have ended before the workers were listed

    # --- creating and changing ---

    def make(self, task: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Json, bool]:
        return self._make(params, options, task=task)

    def make_of_template(
        self, template: int | str, params: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Json, bool]:
        number = template if isinstance(template, int) else self.backend.templates.get(template)["template_id"]
        return self._make(params, options, template_id=number)

    def _make(self, params: Mapping[str, Any], options: Mapping[str, Any], **what: Any) -> tuple[Json, bool]:
        renamed = {"retry_policy" if name == "retry" else name: option for name, option in options.items()}
        made, status = self.link.create(JOBS, given(**what, params=dict(params), **renamed))
        return made, status == 201

    def batch(self, body: Json) -> Json:
        return self.link.create(f"{JOBS}/batch", body)[0]

    def artifacts(self, job_id: int) -> Json:
        return self.link.get(f"{JOBS}/{job_id}/artifacts")

    def download(self, job_id: int, name: str) -> bytes:
        return self.link.download(f"{JOBS}/{job_id}/artifacts/{part(name)}")

    def cancel(self, job_id: int) -> int:
        return self._act(job_id, "cancel")

    def interrupt(self, job_id: int) -> int:
        return self._act(job_id, "interrupt")

    def release(self, job_id: int) -> int:
        return self._act(job_id, "release")

    def resume(self, job_id: int, budget: Mapping[str, float] | None) -> int:
        return self._act(job_id, "resume", given(budget=budget))

    def resolve(self, job_id: int, result: object) -> int:
        return self._act(job_id, "resolve", {"result": result})

    def retry(self, job_id: int, *, again: bool = True, **fields: Any) -> int:
        body = given(**fields, again=None if again else False)
        return int(self.link.create(f"{JOBS}/{job_id}/retry", body)[0]["job_id"])

    def edit(self, job_id: int, *, if_version: int | None = None, **fields: Any) -> int:
        times = {
            name: instant_text(fields[name]) for name in ("not_before", "expires_at") if fields.get(name) is not None
        }
        return int(self.link.patch(f"{JOBS}/{job_id}", given(**{**fields, **times}), if_version=if_version)["job_id"])

    def move(self, job_id: int, **place: Any) -> int:
        where = given(**place)
        if len(where) != 1:
            raise BadInput("give exactly one of to, before, after and rank", field="to")
        return self._act(job_id, "move", where)

    def _act(self, job_id: int, verb: str, body: Json | None = None) -> int:
        return int(self.link.post(f"{JOBS}/{job_id}/{verb}", body)["job_id"])

    # --- watching ---

    def follow(self, job_id: int) -> Iterator[FollowedJob]:
        """Yields the states of a job until it has ended. The end is yielded together with its last log lines."""
        job, lines = self.get(job_id), list[Json]()
        if not _ended(job):
            yield FollowedJob(job, [])
        for message in self.link.live(job_id):
            if message.kind == "lines":
                lines += message.data
            elif message.kind == "job":
                job = message.data
            if not _ended(job):
                yield FollowedJob(job, lines)
                lines = []
        retries = self._retries(job_id)
        yield FollowedJob(self.get(job_id), lines, retries[0] if retries else None)

    def _retries(self, job_id: int) -> list[Json]:
        """Returns the automatic retries after a job, oldest first."""
        retries: list[Json] = self.link.get(f"{JOBS}/{job_id}/chain", after=True)["items"]
        return retries

    def log(self, job_id: int, tail: int | None) -> tuple[list[Json], int]:
        if tail is None:
            return self._lines(job_id, after=0)
        if tail <= MOST_TAIL:
            lines, position = self._lines(job_id, tail=max(1, tail))
            return lines[-tail:] if tail else [], position
        lines, position = [], 0
        while True:
            more, position = self._lines(job_id, after=position)
            if not more:
                return lines, position
            lines = [*lines, *more][-tail:]

    def _lines(self, job_id: int, **asked: int) -> tuple[list[Json], int]:
        """Returns log lines, and the position after which the log continues."""
        limit = {} if "tail" in asked else {"limit": MAX_LIMIT}
        answer = self.link.get(f"{JOBS}/{job_id}/logs", **asked, **limit)
        return answer["items"], answer["position"]

    def more_lines(self, job_id: int, after: int, *, follow: bool) -> Iterator[list[Json]]:
        if follow:
            for message in self.link.live(job_id, after):
                if message.kind == "lines":
                    yield message.data
            return
        while True:
            lines, after = self._lines(job_id, after=after)
            if not lines:
                return
            yield lines

    def wait(self, job_id: int, deadline: float | None) -> Json:
        while True:
            last = next(reversed(self._retries(job_id)), None) or self.get(job_id)
            if over(last["status"]) or (deadline is not None and time.monotonic() >= deadline):
                return last
            for message in self.link.live(last["job_id"], deadline=deadline):
                if message.kind == "job" and over(message.data["status"]):
                    break


def _ended(job: Json) -> bool:
    return State[job["status"]].terminal
