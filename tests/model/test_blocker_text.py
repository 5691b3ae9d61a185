"""What is in a job's way, said by what a page offers and as the command for it."""

from __future__ import annotations

from headway.model.explain.blockers import Blocker, on_page, sentence

PAUSED = Blocker(
    "paused",
    "the target a b is paused; resume it with headway targets resume a b",
    since=0,
    by_button="the target a b is paused; Resume on its page ends the pause",
    command="headway targets resume 'a b'",
)


def test_a_page_speaks_of_its_buttons_and_a_terminal_of_its_commands() -> None:
    assert sentence(PAUSED, 60_000_000) == f"{PAUSED.detail} (for 60 s)"
    assert on_page(PAUSED, 60_000_000) == f"{PAUSED.by_button} (for 60 s)"
    plain = Blocker("no_worker", "every slot is taken")
    assert on_page(plain, 0) == sentence(plain, 0)


def test_how_it_is_said_makes_no_other_blocker_of_it() -> None:
    assert Blocker("paused", PAUSED.detail, since=0) == PAUSED
