"""DBOS queues: an async workflow without steps, a short polling interval, no limit of concurrency."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

NEEDS = ("dbos",)
QUEUE = "bench"
OPTIONS = {"workflow_name": "noop", "queue_name": QUEUE, "app_version": "1"}


def address(url: str) -> str:
    """As SQLAlchemy wants it."""
    if url.startswith("postgresql://"):
        return url.replace("postgresql://", "postgresql+psycopg://", 1)
    return f"sqlite:///{url}"


def launch(url: str, started: Callable[[], None] = lambda: None) -> Any:
    """A launched DBOS that knows the workflow and, so far, no queue."""
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": address(url),
            "application_version": "1",
            "executor_id": "bench",
            "log_level": "ERROR",
        }
    )

    async def noop(n: int) -> int:
        started()
        return n

    DBOS.workflow(name="noop")(noop)
    DBOS.launch()
    return DBOS


def client(url: str) -> Any:
    from dbos import DBOSClient

    return DBOSClient(system_database_url=address(url))


def drain(url: str, *, jobs: int, polling: float) -> float:
    """From the first workflow's start (a new queue is noticed within a second) to the last one's durable end."""
    starts: list[float] = []
    dbos = launch(url, lambda: starts.append(time.monotonic()))
    put_many(url, jobs)
    dbos.register_queue(QUEUE, polling_interval_sec=polling)
    end = until_succeeded(url, jobs)
    dbos.destroy()
    return jobs / (end - min(starts))


def until_succeeded(url: str, jobs: int) -> float:
    import sqlalchemy

    table = "dbos.workflow_status" if url.startswith("postgresql://") else "workflow_status"
    count = sqlalchemy.text(f"select count(*) from {table} where status = 'SUCCESS'")
    with sqlalchemy.create_engine(address(url)).connect() as connection:
        while True:
            found = connection.execute(count).scalar_one()
            connection.rollback()
            if found >= jobs:
                return time.monotonic()
            time.sleep(0.05)


def put_many(url: str, count: int) -> None:
    """Many in one transaction: what it offers for bulk."""
    import sqlalchemy

    sender = client(url)
    with sqlalchemy.create_engine(address(url)).begin() as connection:
        for n in range(count):
            sender.enqueue_in_transaction(connection, OPTIONS, n)


def enqueue_one_by_one(url: str, *, jobs: int) -> float:
    dbos = launch(url)
    sender = client(url)
    start = time.monotonic()
    for n in range(jobs):
        sender.enqueue(OPTIONS, n)
    seconds = time.monotonic() - start
    dbos.destroy()
    return jobs / seconds


def enqueue_bulk(url: str, *, jobs: int, batch: int) -> float:
    dbos = launch(url)
    start = time.monotonic()
    for at in range(0, jobs, batch):
        put_many(url, min(batch, jobs - at))
    seconds = time.monotonic() - start
    dbos.destroy()
    return jobs / seconds
