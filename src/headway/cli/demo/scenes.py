"""`demo`: shows Headway with real jobs, real processes and a real kill -9 in a temporary folder."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headway.cli.command import Invocation, command

if TYPE_CHECKING:
    from headway.cli.demo.stage import DemoStage
    from headway.store.jobs.views import JobView

Views = Sequence["JobView"]


def register(root: typer.Typer) -> None:
    @command(root, "demo", shared=["as_json"])
    def demo(
        call: Invocation,
        fast: Annotated[bool, typer.Option("--fast", help="Run without the pauses for the reader.")] = False,
        open_: Annotated[
            bool, typer.Option("--open", help="Open the dashboard in a browser if there is a display.")
        ] = False,
    ) -> int:
        """Demonstrate Headway for a minute: progress, retries, priorities, targets, a schedule, a crash."""
        from headway.cli.demo.stage import DemoStage

        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="headway-demo-") as folder,
                DemoStage(call.out, Path(folder), fast) as stage,
            ):
                for scene in SCENES:
                    scene(stage)
                    if open_ and scene is opening:
                        stage.open_browser()
                ending(stage)
                if stage.is_watched:
                    stay(stage)
            return 0
        except KeyboardInterrupt:
            call.out.say("headway: the demo was stopped; its folder was removed")
            return 130
        finally:
            signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


# --- the scenes ---------------------------------------------------------------------------------------------------


def opening(stage: DemoStage) -> None:
    stage.title("Headway", "Jobs are kept in a database; a worker is a process that runs them.")
    pid = stage.start_worker()
    stage.tell("This demo uses real ones:")
    stage.tell(f"  database  {stage.database}")
    stage.tell(f"  worker    process {pid}")
    stage.tell(f"  dashboard {stage.address}")
    stage.tell("The dashboard is a page for your browser. It shows each of the following scenes live.")
    stage.tell("One job runs at a time by default, because such jobs are long and need the whole machine.")


def progress(stage: DemoStage) -> None:
    stage.title("1. A job with progress", "A job reports its progress; the dashboard and `headway top` show it.")
    stage.enqueue("demo.bake", {"loaves": 8, "seconds": stage.pace(5.0)})
    stage.watch("a job at work", all_in("COMPLETED"))


def retries(stage: DemoStage) -> None:
    stage.title(
        "2. A job that fails",
        "After a delay a new job retries it, up to three times. Each retry names the job that it retries.",
    )
    retry = {"max_attempts": 3, "base_delay": stage.pace(1.0)}
    stage.enqueue("demo.flaky", {"succeeds_on": 3}, retry=retry)
    stage.watch("a chain of retries", lambda views: len(views) == 3 and views[-1].job.status.name == "COMPLETED")


def order(stage: DemoStage) -> None:
    stage.title("3. Priority", "While the first job runs, three more are enqueued. The highest priority starts first.")
    seconds = stage.pace(1.0)
    gate = stage.gate("order")
    first = stage.enqueue("demo.step", {"name": "first", "seconds": stage.pace(2.0), "until": str(gate)})
    stage.await_start(first)
    for name, priority in (("low", 0), ("middle", 50), ("high", 90)):
        stage.enqueue("demo.step", {"name": name, "seconds": seconds}, priority=priority)
    gate.touch()
    views = stage.watch("four jobs, one at a time", all_in("COMPLETED"))
    started = sorted(views[1:], key=lambda view: view.job.started_at or 0)
    stage.tell("They started in this order: " + ", ".join(f"priority {view.job.priority}" for view in started) + ".")


def resource(stage: DemoStage) -> None:
    stage.title("4. A resource", "The oven has a capacity of two. Two jobs that need it run at once, the others wait.")
    gate = stage.gate("oven")
    for name in ("rye", "wheat", "spelt", "oat"):
        params = {"name": name, "seconds": stage.pace(1.5), "until": str(gate)}
        stage.enqueue("demo.step", params, resources=["oven"])
    stage.watch("two at once", lambda views: sum(view.job.started_at is not None for view in views) >= 2, last=False)
    stage.show_limits()
    gate.touch()
    stage.watch("four loaves, two at a time", all_in("COMPLETED"))


def target(stage: DemoStage) -> None:
    stage.title(
        "5. A target",
        "Only one job at a time works on a target. A job that fails there holds it until a person decides.",
    )
    seconds = stage.pace(1.0)
    for machine, broken in (("desk-1", True), ("desk-1", False), ("desk-2", False)):
        stage.enqueue("demo.visit", {"machine": machine, "seconds": seconds, "broken": broken}, target=machine)
    stage.watch(
        "held, waiting, completed",
        lambda views: [view.job.status.name for view in views] == ["ERROR", "QUEUED", "COMPLETED"],
        last=False,
    )
    stage.show_targets()
    stage.tell("$ headway targets release desk-1")
    stage.client.release_target("desk-1")
    stage.watch("the next job on the target", lambda views: views[1].job.status.name == "COMPLETED")
    stage.tell("Instead of `release`, use `headway jobs resume`, `resolve` or `retry` to continue the failed job.")


def direct(stage: DemoStage) -> None:
    stage.title(
        "6. A direct call", "It is not a job. It takes the next slot, ahead of the queue, and returns its result."
    )
    seconds = stage.pace(1.0)
    gate = stage.gate("direct")
    first = stage.enqueue("demo.step", {"name": "running", "seconds": stage.pace(2.0), "until": str(gate)})
    stage.await_start(first)
    stage.enqueue("demo.step", {"name": "queued", "seconds": seconds})
    stage.tell('>>> step.call(name="direct", seconds=…)')
    answer, granted_at = stage.call("demo.step", {"name": "direct", "seconds": seconds}, in_line=gate.touch)
    views = stage.watch("the queue continues", all_in("COMPLETED"))
    began = {f"job {view.job.id}": view.job.started_at or 0 for view in views} | {"the direct call": granted_at}
    stage.tell(f"It returned {answer!r}. They began in this order: {', '.join(sorted(began, key=began.__getitem__))}.")


def schedule(stage: DemoStage) -> None:
    from headway.model.schedules import cron
    from headway.text.cron import sentence

    name, when, zone = "nightly HR sync", "30 2 * * mon-fri", "Europe/Berlin"
    stage.title(
        "7. A schedule",
        "It has four stages, two of them with two parallel jobs. All jobs exist from the start; later stages wait.",
    )
    seconds = stage.pace(1.0)
    plan = ("HR import",), ("HR sync",), ("AD export", "LDAP export"), ("AD check", "LDAP check")
    steps = [
        {"index": n, "name": step, "task": "demo.step", "params": {"name": step, "seconds": seconds}}
        for n, stage_of_plan in enumerate(plan)
        for step in stage_of_plan
    ]
    schedules = stage.client.schedules
    schedules.create(name, {"cron": when, "timezone": zone, "steps": steps})
    stage.tell(f"It fires {sentence(cron.parse(when), zone)}; next at {schedules.preview(name, 1)[0].local}.")
    stage.tell(f'$ headway schedules run "{name}"')
    execution = schedules.run(name)
    stage.watch("six jobs in four stages", all_in("COMPLETED"))
    stage.tell(f"Execution {execution} is {stage.client.groups.get(execution).status}.")


def cancelling(stage: DemoStage) -> None:
    stage.title("8. A cancel", "A running job is asked to stop, and is killed with all its processes if it does not.")
    job_id = stage.enqueue("demo.endless", {})
    stage.await_progress(job_id, 3)
    stage.tell(f"$ headway jobs cancel {job_id}")
    stage.client.cancel(job_id)
    stage.watch("a job that was cancelled", all_in("CANCELLED"))


def crash(stage: DemoStage) -> None:
    stage.title("9. A crash", "In the middle of a job its worker is killed, as by a power cut or a lack of memory.")
    retry = {"max_attempts": 3, "base_delay": stage.pace(1.0)}
    gate = stage.gate("crash")
    params = {"stages": 10, "seconds": stage.pace(5.0), "until": str(gate)}
    job_id = stage.enqueue("demo.journey", params, retry=retry)
    stage.await_progress(job_id, 4)
    stage.tell(f"$ kill -9 {stage.kill_worker()}")
    gate.touch()
    stage.watch("the worker is dead, its job still stored", lambda _: True)
    pid = stage.start_worker()
    stage.tell(f"A new worker, process {pid}, starts. First it recovers the jobs of dead workers.")
    views = stage.watch(
        "lost, retried, completed", lambda views: len(views) == 2 and views[-1].job.status.name == "COMPLETED"
    )
    stage.tell(f"The retry continued from its checkpoint: {views[-1].run.result if views[-1].run else ''}")


def checking(stage: DemoStage) -> None:
    from headway.verify import check

    stage.title("10. The history", "Every transition of every job was recorded. `headway verify` checks the record:")
    stage.stop_worker()
    report = check(stage.client.database, quiet=True)
    for finding in report.findings:
        stage.tell(f"{finding.invariant} {finding.thing}: {finding.text}")
    stage.tell(f"{report.counted.get('jobs', 0)} jobs checked, {len(report.findings)} promises broken.")


def ending(stage: DemoStage) -> None:
    stage.title("Next steps", "The demo's folder is removed when it ends. Try these in a folder of your own:")
    if shutil.which("headway") is None:  # `make demo` runs it from .venv, which is not on the PATH
        stage.tell(f'export PATH="{Path(sys.argv[0]).absolute().parent}:$PATH"')
    for line, meaning in (
        ("headway up", "start Headway here, on ./headway.db, with its dashboard"),
        ("headway sh --follow -- echo hello", "in another terminal: run any program as a job"),
        ("headway jobs ls", "list jobs and their states"),
        ("headway top", "watch running and waiting jobs live"),
        ("headway up --app jobs.py:app", "run your own Python functions"),
    ):
        stage.tell(f"{line:<36}{meaning}")


def stay(stage: DemoStage) -> None:
    """Keeps the dashboard and a worker running until Ctrl-C."""
    stage.stop_worker()
    stage.start_worker()
    stage.title("The dashboard stays", f"{stage.address} shows the jobs of this demo. Some things to try:")
    for line in (
        "Schedules: run the nightly HR sync now, and watch its stages under Executions",
        "History: the failed runs; open one and retry it",
        "Queue: pause it, create some jobs, drag them into another order, resume",
        "Workers: kill -9 the process that is named there, and watch its job recover",
    ):
        stage.tell(f"  {line}")
    stage.tell("Ctrl-C ends the demo.")
    with suppress(KeyboardInterrupt):
        stage.wait()
    stage.tell("")


SCENES = (
    opening,
    progress,
    retries,
    order,
    resource,
    target,
    direct,
    schedule,
    cancelling,
    crash,
    checking,
)


def all_in(status: str) -> Callable[[Views], bool]:
    return lambda views: bool(views) and all(view.job.status.name == status for view in views)
