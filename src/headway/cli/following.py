"""Following a job to the end of its retry chain: its log as it comes, its progress as a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from headway.cli.out import Out, one_line
from headway.cli.tables import about, line_text
from headway.engine.client import Client
from headway.engine.limits import living
from headway.model.states import State
from headway.store import jobs, reading
from headway.store.reading import JobView, Line

if TYPE_CHECKING:
    from rich.progress import Progress

LOOK_SECONDS = 0.15
# A held job waits for a person: there is nothing more to follow.
ENDS = (State.PAUSED, State.ERROR)


def succeeded(view: JobView) -> bool:
    return view.job.status in (State.COMPLETED, State.SKIPPED)


class Follower:
    """One job, and its automatic retries after it."""

    def __init__(self, client: Client, out: Out, job_id: int) -> None:
        self.client = client
        self.out = out
        self.job_id = job_id
        self.chunk = 0
        self.said: State | None = None

    def follow(self) -> JobView:
        """Until it has ended, or is held."""
        with self._bar() as bar:
            while True:
                view, lines, retry = self._look()
                for line in lines:
                    self._print(line, bar)
                self._tell(view, bar)
                if retry is not None:
                    self._go_on(view, retry)
                elif view.job.status.terminal or view.job.status in ENDS:
                    return view
                time.sleep(LOOK_SECONDS)

    def _look(self) -> tuple[JobView, list[Line], JobView | None]:
        """The job, what it logged since, and the retry that follows it; all of one moment."""
        with self.client.database.read() as tx:
            view = reading.view(tx, self.client.tenant_id, self.job_id)
            lines = reading.log_lines(tx, self.job_id, after=self.chunk)
            follower = jobs.automatic_retry(tx, self.job_id) if view.job.status is State.FAILED else None
            retry = reading.view(tx, self.client.tenant_id, follower.id) if follower is not None else None
        if lines:
            self.chunk = lines[-1].chunk
        return view, lines, retry

    def _go_on(self, view: JobView, retry: JobView) -> None:
        error = one_line((view.run.error if view.run and view.run.error else "").split("\n")[0])
        now = self.client.database.clock.now()
        wait = max(0.0, ((retry.job.not_before or now) - now) / 1e6)
        self.out.say(f"job {view.job.id} failed: {error}; trying again in {about(wait)} as job {retry.job.id}")
        self.job_id, self.chunk, self.said = retry.job.id, 0, None

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
        with self.client.database.read() as tx:
            if not living(tx):
                self.out.say(f"job {view.job.id} waits: no worker is alive. Start one: headway work")

    def _print(self, line: Line, bar: Progress | None) -> None:
        text = line_text(line)
        if self.out.as_json:
            self.out.say(text)
        elif bar is not None and self.out.stdout.is_terminal:
            bar.console.print(text, soft_wrap=True)  # above the bar: both are the same terminal
        else:
            print(text, flush=True)

    @contextmanager
    def _bar(self) -> Iterator[Progress | None]:
        with nullcontext() if not self.out.stderr.is_terminal else _progress(self.out) as bar:
            if bar is not None:
                bar.add_task("", total=None)
            yield bar


def _progress(out: Out) -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out.stderr, transient=True, redirect_stdout=False, redirect_stderr=True)


def wait_until(ended: Callable[[], bool], deadline: float | None) -> bool:
    """Looks again and again; False when the time is over."""
    while not ended():
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
