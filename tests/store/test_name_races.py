"""Names of schedules and templates, and edits of templates, while two people are at it: who comes second is told so in
our own words, and nobody undoes what the other one did."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headway.engine.tasks.registry import make_spec
from headway.errors import BadInput, WrongState
from headway.model.jobs.job import Options
from tests.support.life import Life
from tests.support.pair import Pair
from tests.support.schedules import Clockwork
from tests.support.waiting import PATIENCE, at_once

Verb = Callable[[], object]


@pytest.fixture
def pair(postgres_url: str) -> Iterator[Pair]:
    with Pair(postgres_url) as pair:
        yield pair
        pair.check_versions()


def renames(life: Life) -> dict[str, tuple[Verb, Verb]]:
    """For each kind of thing: two of them get the same new name."""
    clockwork, templates = Clockwork(life), life.client.templates
    for name in ("a", "b"):
        clockwork.create(name)
        templates.create(name, "sync")
    edit = clockwork.schedules.edit
    return {
        "schedule": (lambda: edit("a", {"name": "c"}), lambda: edit("b", {"name": "c"})),
        "template": (lambda: templates.edit("a", name="c"), lambda: templates.edit("b", name="c")),
    }


def makings(life: Life) -> dict[str, tuple[Verb, Verb]]:
    clockwork, templates = Clockwork(life), life.client.templates
    make = {"schedule": lambda: clockwork.create("c"), "template": lambda: templates.create("c", "sync")}
    return {thing: (one, one) for thing, one in make.items()}


def taken(error: BaseException | None, thing: str) -> None:
    assert isinstance(error, BadInput)
    assert (error.code, error.field) == ("name_taken", "name")
    assert f"there is a {thing} 'c' already" in str(error)


@pytest.mark.parametrize("thing", ["schedule", "template"])
def test_two_that_are_renamed_to_one_name_at_once(pair: Pair, thing: str) -> None:
    first, second = renames(pair)[thing]
    with pair.open_at(f"edit_{thing}:commit", first) as done:
        late = pair.waiting(second)
    done.result()
    taken(late.exception(PATIENCE), thing)


@pytest.mark.parametrize("thing", ["schedule", "template"])
def test_a_name_that_is_being_given_to_a_new_one_cannot_be_taken(pair: Pair, thing: str) -> None:
    rename, make = renames(pair)[thing][0], makings(pair)[thing][0]
    with pair.open_at(f"create_{thing}:commit", make) as done:
        late = pair.waiting(rename)
    done.result()
    taken(late.exception(PATIENCE), thing)


@pytest.mark.parametrize("thing", ["schedule", "template"])
@pytest.mark.parametrize("verbs", [renames, makings])
def test_one_of_two_at_the_same_moment_gets_the_name(
    life: Life, thing: str, verbs: Callable[[Life], dict[str, tuple[Verb, Verb]]]
) -> None:
    errors = [future.exception() for future in at_once(verbs(life)[thing])]
    assert errors.count(None) == 1
    taken(next(error for error in errors if error is not None), thing)
    life.check_versions()


# --- two edits of one template ---


def test_two_people_editing_a_template_at_once_both_succeed(pair: Pair) -> None:
    Clockwork(pair)
    templates = pair.client.templates
    templates.create("t", "sync", params={"n": 1})
    with pair.open_at("edit_template:commit", lambda: templates.edit("t", params={"n": 2}, name="u")):
        other = pair.waiting(lambda: templates.edit("t", priority=7))
    other.result(PATIENCE)
    stored = templates.get("u")
    assert (stored.params, stored.fields["priority"], stored.version) == ({"n": 2}, 7, 3)


def test_of_two_edits_of_one_version_the_second_is_refused(pair: Pair) -> None:
    Clockwork(pair)
    templates = pair.client.templates
    made = templates.create("t", "sync")
    with pair.open_at("edit_template:commit", lambda: templates.edit("t", priority=1, if_version=made.version)):
        other = pair.waiting(lambda: templates.edit("t", priority=2, if_version=made.version))
    error = other.exception(PATIENCE)
    assert isinstance(error, WrongState)
    assert error.code == "version_mismatch"
    assert templates.get("t").fields["priority"] == 1


async def press(dents: int) -> None: ...


def test_two_edits_that_do_not_fit_together_are_not_both_stored(pair: Pair) -> None:
    """Each is right for the template that both have read."""
    Clockwork(pair)
    templates = pair.client.templates
    templates.create("t", "sync", params={"n": 1})
    pair.client.registry.add(make_spec(press, name="press", isolation=None, options=Options(), priority=0))
    with pair.open_at("edit_template:commit", lambda: templates.edit("t", task="press", params={"dents": 3})) as first:
        other = pair.waiting(lambda: templates.edit("t", params={"n": 2}))
    first.result()
    assert isinstance(other.exception(PATIENCE), BadInput)
    assert templates.get("t").version == 2
