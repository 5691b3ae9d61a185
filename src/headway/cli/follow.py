"""Follows a job to the end of its retry chain: prints its log live and shows its progress as a bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from headway.cli.backend.base import FollowedJob, over
from headway.cli.output import Out, one_line
from headway.cli.tables.jobs import about, line_text
from headway.model.jobs.states import State
from headway.store.jobs.views import JobView, LogLine
from headway.text.findings import NO_WORKER

if TYPE_CHECKING:
    from rich.progress import Progress

    from headway.cli.command import Desk


def succeeded(view: JobView) -> bool:
    return view.job.status in (State.COMPLETED, State.SKIPPED)


class Follower:
    """Follows one job and the automatic retries after it."""

    def __init__(self, desk: Desk, out: Out, job_id: int) -> None:
        self.desk = desk
        self.out = out
        self.job_id = job_id
        self.said: State | None = None

    def follow(self) -> JobView:
        """Prints the log until the last job of the chain has ended or is held; returns its view."""
        with self._bar() as bar:
            while True:
                seen = self._to_the_end(bar)
                if seen.retry is None:
                    return seen.view
                self._go_on(seen.view, seen.retry)

    def _to_the_end(self, bar: Progress | None) -> FollowedJob:
        """Follows one job until it has ended, is held or has a retry; returns its last state."""
        for seen in self.desk.follow(self.job_id):
            for line in seen.lines:
                self._print(line, bar)
            self._tell(seen.view, bar)
            if seen.retry is not None or over(seen.view.job.status):
                return seen
        raise AssertionError("the backend stopped following a job before the job ended")

    def _go_on(self, view: JobView, retry: JobView) -> None:
        error = one_line((view.run.error if view.run and view.run.error else "").split("\n")[0])
        now = self.desk.now()
        wait = max(0.0, ((retry.job.not_before or now) - now) / 1e6)
        self.out.say(f"job {view.job.id} failed: {error}; retry in {about(wait)} as job {retry.job.id}")
        self.job_id, self.said = retry.job.id, None

    def _tell(self, view: JobView, bar: Progress | None) -> None:
        if view.job.status is not self.said:
            self.said = view.job.status
            if self.said is State.QUEUED:
                self._tell_why(view)
        if bar is not None and bar.task_ids:
            report = view.report
            bar.update(
                bar.task_ids[0],
                description=one_line(
                    f"job {view.job.id} {view.job.status.name} {report.label or '' if report else ''}"
                ),
                completed=report.done or 0 if report else 0,
                total=report.total if report else None,
            )

    def _tell_why(self, view: JobView) -> None:
        if self.desk.alone():
            self.out.say(f"job {view.job.id} waits: {NO_WORKER.sentence}; {NO_WORKER.remedy.line}")

    def _print(self, line: LogLine, bar: Progress | None) -> None:
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
