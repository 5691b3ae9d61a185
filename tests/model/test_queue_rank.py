"""Who is ahead of a job: those who need the same are judged once, and the answer is as if each were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.model.explain.blockers import _ahead, _competes, _obstacles
from headway.model.explain.snapshot import LaneLoad, QueuedJob, QueueSnapshot, WorkerSlots
from tests.support.queued import BUCKETS, queued

LANES = {
    1: LaneLoad("global", 2, free=1),
    2: LaneLoad("gpu", 1, resource=True, free=0),
    3: LaneLoad("disk", None, resource=True),
}
KIND = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from([(), (1,), (1, 2), (3,)]),
    st.sampled_from([None, 8, 9]),
    st.booleans(),
    st.sampled_from([None, (4, 0), (4, 1)]),
)
Kind = tuple[str, tuple[int, ...], int | None, bool, tuple[int, int] | None]
HANDS = st.sampled_from([(), (WorkerSlots(frozenset("ab"), 1, 0),), (WorkerSlots(frozenset("a"), 1, 1),)])


def made(number: int, kind: Kind) -> QueuedJob:
    task, lanes, target_id, is_open, stage = kind
    group_id, of_group = stage or (None, None)
    return queued(number, task, lanes, target_id, open=is_open, group_id=group_id, stage=of_group)


@given(st.lists(KIND, max_size=12), KIND, HANDS, st.data())
def test_the_line_is_as_if_each_were_judged(
    kinds: list[Kind],
    asked: Kind,
    all_slots: tuple[WorkerSlots, ...],
    data: st.DataObject,
) -> None:
    line = tuple(made(n, kind) for n, kind in enumerate(kinds, 100))
    scene = QueueSnapshot(now=1, tenant_id=1, lanes=LANES, all_slots=all_slots, line=line, buckets=BUCKETS)
    job = made(7, asked)
    place = data.draw(st.integers(0, len(line)))
    obstacles = _obstacles(job, scene)
    each = {n for n, one in enumerate(line[:place]) if _competes(one, job, obstacles, scene)}
    assert _ahead(job, place, scene) == each
    assert [scene.places[one.id] for one in line] == list(range(len(line)))
