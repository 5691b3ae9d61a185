"""Follows a job to the end of its retry chain: prints its log live and shows its progress as a bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from headway.cli.backend.base import FollowedJob, over
from headway.cli.output import Json, Out, one_line
from headway.cli.tables.jobs import line_text
from headway.cli.tables.times import about, moment
from headway.text.findings import NO_WORKER

if TYPE_CHECKING:
    from rich.progress import Progress

    from headway.cli.backend.base import Backend


def succeeded(job: Json) -> bool:
    return job["status"] in ("COMPLETED", "SKIPPED")


class Follower:
    """Follows one job and the automatic retries after it."""

    def __init__(self, backend: Backend, out: Out, job_id: int) -> None:
        self.backend = backend
        self.out = out
        self.job_id = job_id
        self.shown: str | None = None

    def follow(self) -> Json:
        """Prints the log until the last job of the chain has ended or is held; returns it."""
        with self._bar() as bar:
            while True:
                seen = self._to_the_end(bar)
                if seen.retry is None:
                    return seen.job
                self._go_on(seen.job, seen.retry)

    def _to_the_end(self, bar: Progress | None) -> FollowedJob:
        """Follows one job until it has ended, is held or has a retry; returns its last state."""
        for seen in self.backend.jobs.follow(self.job_id):
            for line in seen.lines:
                self._print(line, bar)
            self._tell(seen.job, bar)
            if seen.retry is not None or over(seen.job["status"]):
                return seen
        raise AssertionError("the backend stopped following a job before the job ended")

    def _go_on(self, job: Json, retry: Json) -> None:
        error = one_line((job["run"]["error"] if job["run"] and job["run"]["error"] else "").split("\n")[0])
        now, start = self.backend.now(), retry["not_before"]
        wait = 0.0 if start is None else max(0.0, (moment(start) - now) / 1e6)
        self.out.say(f"job {job['job_id']} failed: {error}; retry in {about(wait)} as job {retry['job_id']}")
        self.job_id, self.shown = retry["job_id"], None

    def _tell(self, job: Json, bar: Progress | None) -> None:
        if job["status"] != self.shown:
            self.shown = job["status"]
            if self.shown == "QUEUED":
                self._tell_why(job)
        if bar is not None and bar.task_ids:
            progress = job["progress"] or {"done": 0, "total": None, "label": None}
            words = f"job {job['job_id']} {job['status']} {progress['label'] or ''}"
            bar.update(
                bar.task_ids[0], description=one_line(words), completed=progress["done"], total=progress["total"]
            )

    def _tell_why(self, job: Json) -> None:
        if self.backend.alone():
            self.out.say(f"job {job['job_id']} waits: {NO_WORKER.sentence}; {NO_WORKER.remedy.line}")

    def _print(self, line: Json, bar: Progress | None) -> None:
        text = line_text(line)
        if self.out.as_json:
            self.out.say(text)
        elif bar is not None and self.out.stdout.is_terminal:
            bar.console.print(text, soft_wrap=True)  # the bar is on the same terminal and stays below the text
        else:
            print(text, flush=True)

    @contextmanager
    def _bar(self) -> Iterator[Progress | None]:
        with nullcontext() if not self.out.stderr.is_terminal else progress_bar(self.out) as bar:
            if bar is not None:
                bar.add_task("", total=None)
            yield bar


def progress_bar(out: Out) -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out.stderr, transient=True, redirect_stdout=False, redirect_stderr=True)
