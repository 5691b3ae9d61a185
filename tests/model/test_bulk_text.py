"""One verb for many jobs: to whom it is offered, with which number, and what is told afterwards."""

from __future__ import annotations

from headway.engine.client.bulk import ACTIONS
from headway.model.jobs.states import State
from headway.text.bulk import offers, outcome_text

S = State


def labels(**counts: int) -> list[str]:
    return [one.label for one in offers({State[name]: count for name, count in counts.items()})]


def test_every_action_there_is_is_offered_to_somebody() -> None:
    assert {one.action for one in offers(dict.fromkeys(State, 1))} == set(ACTIONS)


def test_the_number_is_that_of_the_jobs_it_applies_to() -> None:
    assert labels(QUEUED=30, WAITING=7, RUNNING=0) == ["Cancel 37 jobs", "Put 37 jobs on hold"]
    assert labels(WAITING=7) == ["Cancel 7 jobs", "Put 7 jobs on hold", "Resume 7 jobs"]
    assert labels(PAUSED=1) == ["Cancel 1 job", "Resume 1 job", "Release 1 job", "Retry 1 job"]
    assert labels(FAILED=1_234) == ["Retry 1,234 jobs"]
    assert labels(RUNNING=2, QUEUED=1) == ["Cancel 3 jobs", "Interrupt 3 jobs"]
    assert labels(COMPLETED=5) == labels() == []


def test_an_offer_names_its_states() -> None:
    resume = next(one for one in offers({S.QUEUED: 3, S.PAUSED: 2, S.ERROR: 1}) if one.action == "resume")
    assert (resume.count, resume.statuses) == (3, (S.PAUSED, S.ERROR))
    assert resume.question.startswith("2 PAUSED, 1 ERROR. ")


def test_what_is_told_afterwards() -> None:
    assert outcome_text("cancel", 1, []) == "1 job was cancelled, or asked to stop."
    text = outcome_text("resume", 2, [(n, f"job {n} ran") for n in range(5)])
    assert text == "2 jobs were resumed. 5 jobs were not: job 0 ran; job 1 ran; job 2 ran; and 2 more."
    assert (
        outcome_text("cancel", 500, [], 2_710)
        == "500 jobs were cancelled, or asked to stop. 2,710 of 3,210 are left: continue?"
    )
    assert outcome_text("retry", 0, [(4, "job 4 ran")]) == "0 jobs were tried again. 1 job was not: job 4 ran."
