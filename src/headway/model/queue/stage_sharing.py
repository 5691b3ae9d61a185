"""Stage sharing: in a lane of the policy, the running jobs of one parallel stage take one place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headway.model.queue.place import Stage


class StageSharing:
    """The rule of decision 0015, for one claim.

    The running jobs of a parallel stage count as one in the lanes of the policy; other lanes and targets count each.
    A full lane in which a stage runs is joinable: a further member of that stage takes no place there. A member joins
    if its stage runs in every full lane that it needs.

    A better placed job that waits only for joinable lanes blocks them: no member joins them for the rest of the claim,
    so that the stage drains and the job gets the place. The job counts even if this worker does not know its task. A
    reserved lane is not joinable, because the reservation goes first.

    When tenants take turns, a stage that entered a lane with this claim may bring all its members, because a turn is
    worth one place. A job of another tenant then only keeps its own tenant's members off the lane. The `queue` of a job
    is its tenant in that case, and 0 for all jobs otherwise.
    """

    __slots__ = ("entered", "examined", "joinable", "kept_off", "stages")

    def __init__(self, stages: dict[int, set[Stage]] | None = None) -> None:
        # The running stages in each limited lane of the policy.
        self.stages = {} if stages is None else stages
        self.begin_claim(())

    def begin_claim(self, joinable: Iterable[int]) -> None:
        """Opens these lanes to further members, and forgets what an earlier claim did."""
        self.joinable = set(joinable)
        # The queues whose stages entered each lane in this claim, and the lanes that each queue's members may not join.
        self.entered: dict[int, set[int]] = {}
        self.kept_off: dict[int, set[int]] = {}
        # The joinable lanes that `newly_joinable` has reported.
        self.examined: set[int] = set()

    def copy(self) -> StageSharing:
        twin = StageSharing({lane: set(inside) for lane, inside in self.stages.items()})
        twin.begin_claim(self.joinable)
        return twin

    # --- joining ---

    def accepts_members(self, lanes: Sequence[int], queue: int = 0) -> bool:
        """Returns True if one of these lanes is joinable, and the queue's members are kept off none of them."""
        if self.joinable.isdisjoint(lanes):
            return False
        return not self.kept_off or self.kept_off.get(queue, set()).isdisjoint(lanes)

    def may_join(self, lanes: Sequence[int], stage: Stage | None) -> bool:
        """Returns True if the stage already runs in every joinable lane among these."""
        return stage is not None and all(stage in self.stages[lane] for lane in lanes if lane in self.joinable)

    def takes_place(self, lane: int, stage: Stage | None, queue: int | None) -> bool:
        """Counts a job that enters a lane; returns False if it shares the place of its stage.

        `queue` is None for a job that was claimed before.
        """
        inside = self.stages.get(lane)
        if inside is None or stage is None:
            return True
        if stage in inside:
            return False
        inside.add(stage)
        if queue is not None:
            self.entered.setdefault(lane, set()).add(queue)
        return True

    def fill(self, lane: int) -> None:
        """Opens a lane to members because its last place was taken, if a stage runs in it."""
        if self.stages.get(lane):
            self.joinable.add(lane)

    # --- blocking ---

    def block(self, lanes: Collection[int], queue: int = 0) -> bool:
        """Closes lanes to further members, because a job of this queue waits for them.

        Returns True if the queue's members could join one of them until now.
        """
        spared = {lane for lane in lanes if self.entered.get(lane, set()) - {queue}} if self.entered else set()
        newly_kept_off = (spared & self.joinable) - self.kept_off.get(queue, set())
        if newly_kept_off:
            self.kept_off.setdefault(queue, set()).update(newly_kept_off)
        return self._close([lane for lane in lanes if lane not in spared]) or bool(newly_kept_off)

    def _close(self, lanes: Collection[int]) -> bool:
        if self.joinable.isdisjoint(lanes):
            return False
        self.joinable.difference_update(lanes)
        return True

    def newly_joinable(self) -> set[int]:
        """Returns the lanes that became joinable since the last call.

        A job of a task that this worker does not know may wait for them, and has to be compared then.
        """
        fresh = self.joinable - self.examined
        self.examined |= fresh
        return fresh
