"""The worst data that a tenant may store: a thousand of most things, the longest names, a queue of 10,000."""

from __future__ import annotations

import json

from headway import App
from headway.engine.direct.reservations import MOST_OUTSIDE
from headway.model.access.permissions import Role
from headway.model.jobs.job import NewJob
from headway.model.jobs.outcome import Completed, Failed, FailureKind
from tests.support.life import Life

# Failures, tokens and tenants are made one by one, and a few hundred of them show what a thousand would.
QUEUED, EACH, FEW = 10_000, 1_000, 200
TASK = "shop.greet"
STEP = {"task": TASK, "params": {"name": "Ada"}}
# Hourly since 2020, with a thousand times behind it, and every kind of rhythm.
CRONS = ("0 3 * * *", "* * * * *", "0 0 29 2 *", "0 0 29 2 */6", "*/7 1-5 */2 1,6 mon-fri", "0 0 1 1 *")
LARGE = "x" * 200_000
SPARE = 20  # reservations that a test may still make


def longest(kind: str, n: int) -> str:
    return f"{kind}-{n:04}-".ljust(200, "x")


def fill(app: App, database: str) -> tuple[str, dict[str, int]]:
    """Stores them. Returns a token of an admin of the system, and the number of one thing of each kind."""
    client = app.client
    with Life(database) as life:
        large = _ended(life)
        jobs = [
            NewJob(TASK, json.dumps({"name": longest("name", n)}), "{}", target=longest("target", n))
            for n in range(EACH)
        ]
        client.enqueue_many(jobs)
        for _ in range(QUEUED // EACH - 1):
            client.enqueue_many([NewJob(TASK, '{"name":"Ada"}', "{}")] * EACH)
        ids = {**_things(app), "large": large}
        for _ in range(FEW // 10):
            life.new_worker()
    return client.tokens.create("root", Role.ADMIN, tenant=None)[1], ids


def _ended(life: Life) -> int:
    """Failures with errors of their own, and one job with as much of everything as it may have."""
    for n in range(FEW):
        error = f"Error{n}: the disc {'abcdefghij'[n % 10] * (n % 97)} of {'xyz' * (n % 41)} broke"
        life.run(life.enqueue(retry=0, task=TASK), Failed(FailureKind.EXCEPTION, error, final=True))
    params = json.dumps({"name": LARGE})
    large = life.enqueue(retry=0, task=TASK, params=params, key=longest("key", 1))
    claim = life.claim(large)
    lines = [[1, "info", "x" * 200]] * 100
    for n in range(100):
        life.sql_write(f"insert into hw_log (job_id, at, lines) values ({large}, {n}, '{json.dumps(lines)}')")
    life.end(claim, Completed(json.dumps({"text": LARGE})))
    return large


def _things(app: App) -> dict[str, int]:
    client = app.client
    for n in range(EACH):
        client.templates.create(longest("template", n), TASK)
        client.schedules.create(longest("schedule", n), {"cron": CRONS[n % len(CRONS)], "steps": [STEP]})
        client.webhooks.create(url=f"https://example.com/{n}", events=["schedule.tick.skipped"])
    for n in range(FEW):
        client.tokens.create(longest("token", n), Role.VIEWER, tenant="default")
        client.tenants.create(longest("tenant", n))
    client.tenants.edit("default", {"allow": ("command", "powershell", "sql", "policy")})
    for n in range(EACH):
        reservation = client.reserve(target=longest("target", n), ttl="10m")
        if n >= MOST_OUTSIDE - SPARE:
            client.release_reservation(reservation.id)  # its target stays
    often = client.schedules.create("often", {"interval": "1s", "steps": [STEP], "start": "2026-01-01T00:00:00Z"})
    client.schedules.backfill(often.id, "2026-01-01T00:00:00Z", "2026-01-01T00:16:39Z")
    return {"often": often.id}
