"""Keeps the numbers of jobs apart after a restore: clients may know those that were given after the backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli.database.open import open_existing
from headway.errors import HeadwayError
from headway.store.db import open_database

if TYPE_CHECKING:
    from headway.config import Settings


def given(settings: Settings) -> int | None:
    """Returns the last number that the database gave to a job; None if it cannot be read any more."""
    try:
        database = open_existing(settings)
    except HeadwayError:
        return None
    try:
        with database.read() as tx:
            ((number,),) = tx.run("job_numbers")
            return int(number)
    except HeadwayError:
        return None
    finally:
        database.close()


def go_on_after(url: str, number: int | None) -> None:
    """Makes a restored database give higher numbers than this one only."""
    if number is None:
        return
    database = open_database(url)
    try:
        with database.transaction("raise_job_numbers") as tx:
            tx.run("raise_job_numbers", number=number)
    finally:
        database.close()
