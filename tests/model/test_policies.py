"""Which lanes a kind of work needs, by each policy and by a user's own, and what limit a lane has."""

from __future__ import annotations

import pytest

from headway.errors import BadInput
from headway.model.queue.policies import BUILT_IN, Concurrency, find
from tests.support.own_policies import ByLetter

OWN = "tests.support.own_policies"


@pytest.mark.parametrize(
    ("policy", "resources", "lanes"),
    [
        ("global", (), ("global",)),
        ("global", ("ollama",), ("global",)),
        ("per_task", (), ("task:story",)),
        ("per_task", ("ollama",), ("task:story",)),
        ("per_resource", (), ("global",)),
        ("per_resource", ("ollama", "remote"), ()),
        (f"{OWN}.ByLetter", (), ("letter:s",)),
        (f"{OWN}.ByLetter", ("ollama",), ("letter:s", "global")),
        (f"{OWN}:by_letter", (), ("letter:s",)),
        (f"{OWN}.NoLanes", (), ()),
    ],
)
def test_the_lanes_of_a_kind_of_work(policy: str, resources: tuple[str, ...], lanes: tuple[str, ...]) -> None:
    """The lanes of resources are not among them: those a job needs under every policy."""
    concurrency = Concurrency(policy)
    assert concurrency.lanes("story", resources, on_target=False) == lanes
    assert concurrency.lanes("story", resources, on_target=True) == ()
    assert Concurrency(policy, targets="global").lanes("story", resources, on_target=True) == lanes


def test_without_a_word_all_work_is_in_one_lane_of_one_place() -> None:
    usual = Concurrency()
    assert usual.lanes("story", (), on_target=False) == ("global",)
    assert usual.capacity("global") == 1
    assert usual.aging is None


def test_a_lane_that_is_named_twice_is_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByLetter, "lanes", lambda self, task, resources: ["a", "b", "a"])
    assert Concurrency(f"{OWN}.ByLetter").lanes("story", (), on_target=False) == ("a", "b")


@pytest.mark.parametrize(
    ("lane", "capacity"),
    [("global", 2), ("task:story", 5), ("task:research", 7), ("task:other", 2), ("letter:s", 3), ("story", 5)],
)
def test_the_limit_of_a_lane_is_its_own_or_its_tasks_or_the_usual_one(lane: str, capacity: int) -> None:
    limits = (("letter:s", 3), ("research", 9), ("story", 5), ("task:research", 7))
    assert Concurrency(limit=2, limits=limits).capacity(lane) == capacity


def test_no_limit_at_all() -> None:
    unlimited = Concurrency(limit=None, limits=(("story", 4),))
    assert (unlimited.capacity("global"), unlimited.capacity("task:story")) == (None, 4)


def test_the_built_in_policies_are_found_by_their_names() -> None:
    assert all(callable(find(name).lanes) for name in BUILT_IN)
    assert isinstance(find(f"{OWN}.ByLetter"), ByLetter)


@pytest.mark.parametrize(
    "name",
    ["", "per_planet", "tests.support.own_policies.Nothing", "nowhere.at.All", f"{OWN}.annotations", "json.dumps", "."],
)
def test_a_policy_that_is_none_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(BadInput) as refusal:
        find(name)
    assert refusal.value.field == "concurrency.policy"
    assert "\n" not in str(refusal.value)
