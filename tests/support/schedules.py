"""Schedules at work, step by step: a database with a clock that stands still, a person, a scheduler and a worker."""

from __future__ import annotations

from typing import Any

from headway.engine.scheduler.scheduler import Scheduler
from headway.engine.tasks.registry import make_spec
from headway.model.jobs.job import Options
from headway.model.jobs.outcome import Completed, Outcome
from headway.model.schedules.schedule import Schedule
from headway.store.db import Row
from tests.support.life import Life

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


async def sync(n: int = 1, mode: str = "full", source: str = "") -> None: ...


def teach(life: Life, *names: str) -> None:
    """Tasks that the person's process has."""
    for name in names or ("sync", "export"):
        life.client.registry.add(make_spec(sync, name=name, isolation=None, options=Options(), priority=0))


class Clockwork:
    """What a test does with schedules."""

    def __init__(self, life: Life) -> None:
        teach(life)
        self.life = life
        self.schedules = life.client.schedules
        self.scheduler = Scheduler(life.client)
        self.began = life.clock.now()
        self.tampered = False

    def create(self, name: str = "nightly", /, **fields: Any) -> Schedule:
        """Every five minutes, unless it is said otherwise."""
        when = {} if fields.keys() & {"interval", "times", "cron"} else {"cron": "*/5 * * * *"}
        what = {} if fields.keys() & {"template", "steps"} else {"steps": [{"task": "sync"}]}
        return self.schedules.create(name, {**when, **what, **fields})

    def advance(self, duration: float | str) -> None:
        """Time goes by and the scheduler does all that is due."""
        self.life.clock.advance(duration)
        self.round()

    def round(self) -> None:
        while self.scheduler.tick() == 0.0:
            pass

    # --- looking ---

    def minutes(self, instant: int) -> int:
        return (instant - self.began) // MINUTE

    def ticks(self, schedule_id: int = 1) -> list[tuple[int, int, str]]:
        """First nominal time in minutes since the beginning, how many, outcome and reason."""
        found = self.life.sql(
            f"select nominal_at, count, outcome, reason from hw_tick where schedule_id = {schedule_id} order by id"
        )
        return [
            (self.minutes(at), count, outcome + (f": {reason}" if reason else ""))
            for at, count, outcome, reason in found
        ]

    def executions(self) -> list[tuple[int, str, int | None]]:
        """Number, status, the one it waits for."""
        found = self.life.sql("select id, status, case when stage < 0 then after_id end from hw_group order by id")
        return [(number, status, after) for number, status, after in found]

    def jobs(self, execution_id: int) -> list[Row]:
        return self.life.sql(
            f"select step, stage, status, params from hw_job where group_id = {execution_id} order by id"
        )

    def events(self, thing: str, number: int = 1) -> list[tuple[int, str]]:
        found = self.life.sql(
            f"select version, kind from hw_event where thing = '{thing}' and thing_id = {number} order by version"
        )
        return [(version, kind) for version, kind in found]

    # --- a worker ---

    def work(self, execution_id: int, outcome: Outcome | None = None) -> None:
        """Runs an execution to its end."""
        end = outcome or Completed()
        ready = f"select id from hw_job where group_id = {execution_id} and status = 2 order by id"
        while found := self.life.sql(ready):
            for (job_id,) in found:
                self.life.run(job_id, end)
