"""Runs the scenes of the demo: a database, a worker to start and to kill, and a live table of the jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.schemas.jobs import job_json
from headway.api.schemas.queue import lane_json, target_json
from headway.api.server import Server
from headway.app import App
from headway.cli.commands.limits import lane_table
from headway.cli.commands.targets import target_table
from headway.cli.demo.tasks import app
from headway.cli.output import Out, paragraph, styled, table
from headway.cli.tables.events import status_text
from headway.cli.tables.jobs import note
from headway.engine.client.client import Client
from headway.engine.client.limits import settle
from headway.errors import HeadwayError
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.job import Reservation
from headway.runtime import server
from headway.store.jobs import views as job_views
from headway.store.jobs.views import JobView
from headway.store.queue import lane_views, targets
from headway.store.sqlite.files import private

if TYPE_CHECKING:
    from rich.table import Table

LOOK_SECONDS = 0.1
PATIENCE = 60.0
FAST = 0.08
_BAR = 14
SETTINGS = """
[concurrency]
policy = "per_resource"

[resources]
oven = 2
"""


class DemoStage:
    """The environment of the demo, in a folder of its own. It ignores the user's settings and stops its worker."""

    def __init__(self, out: Out, folder: Path, fast: bool) -> None:
        self.out = out
        self.folder = folder
        self.fast = fast
        self.database = folder / "headway.db"
        self.worker: subprocess.Popen[bytes] | None = None
        self.server: Server | None = None
        self.app: App = app
        self.since = 0
        self.heading = ""
        self.seen: dict[int, str] = {}
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}

    def __enter__(self) -> DemoStage:
        # The demo must not read the user's headway.toml and HEADWAY_ variables.
        own = self.folder / "headway.toml"
        with open(own, "w", opener=private) as file:
            file.write(SETTINGS)
        for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
            del os.environ[name]
        self.app.configure(own, {"database": str(self.database), "host": "127.0.0.1", "port": 0})
        settings = self.app.settings
        settle(self.client.database, settings.concurrency.value(None), settings.resources, actor=self.client.actor)
        # Only the server runs here, so that the next worker, not this process, recovers the job of the crash scene.
        self.server = server(self.app)
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_worker()
        if self.server is not None:
            self.server.stop()
            self.server.join()
        self.app.close()

    @property
    def address(self) -> str:
        """The address of the dashboard."""
        assert self.server is not None
        return f"{self.server.url}/ui/"

    @property
    def is_watched(self) -> bool:
        """True if a person follows the demo at a terminal: not with --fast or --json."""
        return self.out.stdout.is_terminal and not self.fast and not self.out.as_json

    def open_browser(self) -> None:
        """Opens the dashboard if there is a display; a text browser would take over the terminal."""
        if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(self.address)

    def wait(self) -> None:
        """Sleeps until a signal interrupts it."""
        while True:
            time.sleep(3600.0)

    @property
    def client(self) -> Client:
        return self.app.client

    def pace(self, seconds: float) -> float:
        return seconds * FAST if self.fast else seconds

    def gate(self, name: str) -> Path:
        """Returns the path of a gate file. A job that waits for it ends only after the scene creates the file."""
        return self.folder / f"{name}.gate"

    # --- the worker ---

    def start_worker(self) -> int:
        args = [
            "work",
            "--app",
            "headway.cli.demo.tasks:app",
            "--database",
            str(self.database),
            "--slots",
            "3",
            "--json",
        ]
        with open(self.folder / "worker.log", "ab", opener=private) as log:
            self.worker = subprocess.Popen(
                [sys.executable, "-m", "headway", *args],
                cwd=self.folder,
                env=self.environment | {"HEADWAY_SHUTDOWN_GRACE": "1s", "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the demo, which then stops the worker
            )
        return self.worker.pid

    def kill_worker(self) -> int:
        assert self.worker is not None
        self.worker.send_signal(signal.SIGKILL)
        self.worker.wait()
        return self.worker.pid

    def stop_worker(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.terminate()
            try:
                self.worker.wait(10.0)
            except subprocess.TimeoutExpired:
                self.kill_worker()

    # --- output ---

    def title(self, title: str, text: str) -> None:
        """Begins a scene, to which only jobs created from here on belong."""
        with self.client.database.read() as tx:
            newest = job_views.list_jobs(tx, self.client.tenant_id, JobFilter(), 1).items
        self.since = newest[0].job.id if newest else 0
        self.heading = title
        self._pause()
        if not self.out.as_json:
            self.out.show("", paragraph(title, "bold"), paragraph(text))

    def tell(self, text: str) -> None:
        if not self.out.as_json:
            self.out.show(paragraph(text))

    def show_targets(self) -> None:
        """Prints the targets as `headway targets ls` does."""
        with self.client.database.read() as tx:
            found = targets.listed(tx, self.client.tenant_id).items
        self._show("targets ls", target_table(map(target_json, found), self.client.database.clock.now()))

    def show_limits(self) -> None:
        """Prints the limits as `headway limits ls` does."""
        with self.client.database.read() as tx:
            found = lane_views.listed(tx, self.client.tenant_id)
        self._show("limits ls", lane_table(map(lane_json, found)))

    def _show(self, command: str, made: Table) -> None:
        self.tell(f"$ headway {command}")
        if not self.out.as_json:
            self.out.show(made)

    def _pause(self) -> None:
        if not self.fast and self.out.stdout.is_terminal:
            time.sleep(1.0)

    # --- jobs ---

    def enqueue(self, task: str, params: dict[str, Any], **options: Any) -> int:
        return self.app.enqueue(task, params, **options).id

    def call(self, task: str, params: dict[str, Any], *, in_line: Callable[[], object]) -> tuple[Any, int]:
        """Makes a direct call from this process; returns its result and when it was granted.

        Calls `in_line` once the call's reservation is stored.
        """
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.app.direct, task, params)
            try:
                self._await(lambda: answer.done() or bool(self._calls()), "the direct call was not reserved")
            finally:
                in_line()
            return answer.result(), self._calls()[0].granted_at or 0

    def _calls(self) -> Sequence[Reservation]:
        """Returns the newest reservation, or an empty list."""
        with self.client.database.read() as tx:
            rows = tx.run("shown_reservations", tenant_id=self.client.tenant_id, limit=1)
        return [Reservation(*row) for row in rows]

    def await_start(self, job_id: int) -> None:
        self._await(lambda: self.client.get(job_id).started_at is not None, f"job {job_id} did not start")

    def await_progress(self, job_id: int, done: float) -> None:
        def far_enough() -> bool:
            with self.client.database.read() as tx:
                report = job_views.view(tx, self.client.tenant_id, job_id).report
            return report is not None and (report.done or 0) >= done

        self.watch("a job at work", lambda _: far_enough(), last=False)

    def watch(self, what: str, until: Callable[[Sequence[JobView]], bool], *, last: bool = True) -> Sequence[JobView]:
        """Shows this scene's jobs until `until` is true of them, live on a terminal; returns them."""
        if self.out.as_json or not self.out.stdout.is_terminal:
            self._await(lambda: until(self._step()), f"{self.heading}: {what}: not reached")
            if last and self.out.as_json:
                self.out.record({"scene": self.heading, "jobs": [job_json(view) for view in self._views()]})
            return self._views()
        from rich.live import Live

        with Live(console=self.out.stdout, auto_refresh=False, transient=not last) as live:
            self._await(lambda: until(self._draw(live)), f"{self.heading}: {what}: not reached")
            self._draw(live)
        return self._views()

    def _draw(self, live: Any) -> Sequence[JobView]:
        views = self._views()
        live.update(jobs_table(views, self.client.database.clock.now()), refresh=True)
        return views

    def _step(self) -> Sequence[JobView]:
        """Prints one line for each job that has changed its state; used without a terminal."""
        views = self._views()
        for view in views:
            if self.seen.get(view.job.id) != view.job.status.name and not self.out.as_json:
                self.seen[view.job.id] = view.job.status.name
                why = note(job_json(view), self.client.database.clock.now())
                what = view.job.task if view.job.step is None else f"{view.job.task} ({view.job.step})"
                text = f"  job {view.job.id} {what} {view.job.status.name}" + (f": {why}" if why else "")
                self.out.show(text)
        return views

    def _views(self) -> Sequence[JobView]:
        with self.client.database.read() as tx:
            page = job_views.list_jobs(tx, self.client.tenant_id, JobFilter(), 20)
        return [view for view in reversed(page.items) if view.job.id > self.since]

    def _await(self, reached: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > deadline:
                raise HeadwayError(f"the demo is stuck: {otherwise} within {PATIENCE:g} s. {self._log()}")
            time.sleep(LOOK_SECONDS)

    def _log(self) -> str:
        lines = (self.folder / "worker.log").read_text(errors="replace").splitlines()
        return f"Last line of the worker's log: {lines[-1]}" if lines else "The worker's log is empty"


def jobs_table(views: Iterable[JobView], now: int) -> Table:
    made = table("ID", "STATUS", "TASK", "PRIO", "TRY", "PROGRESS", "NOTE", flexible=("NOTE",))
    for view in views:
        job = view.job
        made.add_row(
            str(job.id),
            status_text(job.status.name),
            styled(job.task if job.step is None else f"{job.task}: {job.step}"),
            str(job.priority),
            str(job.attempt),
            _bar(view),
            styled(note(job_json(view), now)),
        )
    return made


def _bar(view: JobView) -> str:
    report = view.report
    if report is None or not report.total or report.total > 1_000:
        return ""
    filled = round(_BAR * min(1.0, (report.done or 0) / report.total))
    return "#" * filled + "." * (_BAR - filled)
