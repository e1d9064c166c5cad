"""How far are the tasks of a job, by what was seen of them?

Of a gang only the present attempt counts: the next one begins anew. Of an array what an attempt has ended stays done.
The same tasks in the same attempts always give the same result, so that after a crash it is worked out from the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from swell.model.cluster import NodeId
from swell.model.job import EXIT_YIELDED, ExitAction, ExitRule, exit_action
from swell.model.launch import CAUSE_DELETED, CAUSE_LEFT_OUT, CAUSE_STOPPED, FAILS_AGAIN, GpuSeen, TaskSeen
from swell.model.training import RankPosition


@dataclass(slots=True)
class Progress:
    """What was seen of a job's tasks. `#:` lines hold at the end of every cycle."""

    is_array: bool
    retries: int  #: of an array: of each index
    exit_rules: tuple[ExitRule, ...] = ()  #: which failures are treated otherwise
    ended: dict[int, bool] = field(default_factory=dict)  #: index → has ended; absent: not begun
    begun_now: set[int] = field(default_factory=set)  #: tasks seen in the present attempt
    running: int = 0
    succeeded: int = 0
    failed: int = 0  #: by themselves
    stopped: set[int] = field(default_factory=set)  #: tasks that we stopped, or that others' failure kept from running
    again: set[int] = field(default_factory=set)  #: of an array: failed, and has tries left
    tries: dict[int, int] = field(default_factory=dict)  #: of an array with retries: index → how often it has failed
    left_out: int = 0  #: of a gang: ranks whose pods were deleted, and without which the others go on
    emptied: set[int] = field(default_factory=set)  #: of a gang: ranks of the present attempt that need no room
    yielded: int = 0  #: tasks that ended with the code for it
    last_end: float | None = None  #: of its tasks; None: none has ended
    failure: TaskSeen | None = None  #: the task that tells why it failed
    deleted: TaskSeen | None = None  #: a task whose object somebody else deleted; None: nobody did
    refusal: TaskSeen | None = None  #: of an array: that its present attempt found no place; None: nobody said so
    finished_on: set[str] = field(default_factory=set)  #: nodes that have nothing of it any more
    begun: dict[int, int] = field(default_factory=dict)  #: rank → epochs begun, as said in the present attempt
    epoch_at: float | None = None  #: when the furthest of those epochs was begun, as far as was heard; None: none was
    positions: dict[int, RankPosition] = field(default_factory=dict)  #: rank → where it is, if it can stop at any step
    began_at: float | None = None  #: when the present attempt began to train; None: it has not
    gpu: dict[NodeId, GpuSeen] = field(default_factory=dict)  #: of the present attempt, where measured; never changed

    @property
    def can_stop_at_step(self) -> bool:
        """Have all ranks said that they can? Rank 0 is the one that saves."""
        return 0 in self.positions and len(self.positions) >= self.positions[0].ranks

    def note_epoch(self, rank: int, number: int, now: float) -> None:
        """A rank has begun this epoch."""
        if number > max(self.begun.values(), default=0):
            self.epoch_at = now
        self.begun[rank] = max(number, self.begun.get(rank, 0))

    def count(self, task: TaskSeen) -> bool:
        """Take a sighting into account; False when it says nothing new."""
        before = self.ended.get(task.index)
        if before or (before is False and task.ended_at is None):
            return False
        if task.ended_at is None:
            self.running += 1
        else:
            self.running -= before is False
            self.last_end = max(self.last_end or 0.0, task.ended_at)
            if task.exit_code == 0 and not task.cause:
                self.succeeded += 1
                if not self.is_array:
                    self.emptied.add(task.index)
            elif task.cause == CAUSE_LEFT_OUT:
                self.left_out += 1
                self.emptied.add(task.index)
            else:
                self._count_failure(task)
        self.ended[task.index] = task.ended_at is not None
        if task.has_run or self.is_array:
            self.begun_now.add(task.index)
        return True

    def _count_failure(self, task: TaskSeen) -> None:
        self.yielded += task.exit_code == EXIT_YIELDED
        if task.cause == CAUSE_STOPPED:
            self.stopped.add(task.index)
        else:
            self.failed += 1
            self._count_try(task)
        self.failure = self._worse(task)
        self.deleted = task if task.cause == CAUSE_DELETED else self.deleted

    def _count_try(self, task: TaskSeen) -> None:
        if not self.is_array or not self.retries:
            return
        self.tries[task.index] = self.tries.get(task.index, 0) + 1
        if not self.fails_for_good(task) and self.tries[task.index] <= self.retries:
            self.again.add(task.index)

    def fails_for_good(self, task: TaskSeen) -> bool:
        """Tried again, it would end the same way: as its cause says, or whoever wrote the job."""
        return task.cause in FAILS_AGAIN or self.action_for(task) is ExitAction.FAIL

    def action_for(self, task: TaskSeen) -> ExitAction | None:
        """What the job's rules say of this failure; None: nothing."""
        return exit_action(self.exit_rules, task.exit_code, task.index)

    def _worse(self, task: TaskSeen) -> TaskSeen:
        """The task to blame, not those we stopped: of an array the lowest index that failed for good, of a gang the
        first that failed."""
        known = self.failure
        if known is None:
            return task
        return min(known, task, key=self._blame_in_array if self.is_array else _blame_in_gang)

    def _blame_in_array(self, seen: TaskSeen) -> tuple[bool, bool, float, int]:
        return seen.cause == CAUSE_STOPPED, seen.index in self.again, 0.0, seen.index

    def put_back(self, again: set[int]) -> None:
        """An array's attempt is over: these indices, and what we stopped, are to be done again."""
        self.ended = {index: True for index, has_ended in self.ended.items() if has_ended}
        for index in (*again, *self.stopped):
            self.ended.pop(index, None)
        if self.failure is not None and self.failure.index not in self.ended:
            self.failure = None
        self.failed -= len(again)
        self.running, self.again, self.stopped = 0, set(), set()
        self.begun_now.clear()

    def emptied_at(self, now: float, since: float) -> float:
        """When the latest task ended, not when we heard of it; now, if none has since the attempt was made."""
        if self.last_end is None or self.last_end < since:  # an array's may be of an earlier attempt
            return now
        return min(now, self.last_end)


def _blame_in_gang(seen: TaskSeen) -> tuple[bool, bool, float, int]:
    return seen.cause == CAUSE_STOPPED, seen.exit_code == EXIT_YIELDED, seen.ended_at or 0.0, seen.index
