"""What a loop does when its round fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.engine.loop import BACKOFF, Loop
from headway.errors import Refused, Unreachable
from headway.store.db import open_database


class Fails(Loop):
    name = "some"

    def __init__(self, error: Callable[[], Exception]) -> None:
        super().__init__()
        self.error = error

    def tick(self) -> float:
        raise self.error()


@pytest.mark.parametrize("error", [lambda: Unreachable("away"), lambda: Refused("no"), OSError])
def test_a_failed_round_is_tried_again(error: Callable[[], Exception]) -> None:
    loop = Fails(error)
    assert loop.safely() == BACKOFF
    assert not loop.ended.is_set()


def test_a_loop_goes_on_although_it_cannot_ask_what_is_wrong(database_url: str) -> None:
    """A failed round asks whether the schema is another one now, and that question may fail for the same reason."""
    loop = Fails(OSError)
    loop.database = open_database(database_url)  # type: ignore[attr-defined]
    loop.database.close()  # type: ignore[attr-defined]
    assert loop.safely() == BACKOFF
    assert not loop.ended.is_set()


def test_a_loop_whose_data_were_moved_says_so_once_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    loop = Fails(lambda: Refused("this database is closed: its data went to postgresql://h/x", code="moved"))
    loop.start()
    try:
        loop.join(60)
        assert loop.ended.is_set()
    finally:
        loop.stop()
    (record,) = caplog.records
    assert record.exc_info is None
    assert "its data went to postgresql://h/x. This part ends" in record.getMessage()
