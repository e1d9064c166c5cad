"""What does a training script hold in its hand?

    run = swell_sdk.attach()
    model = load(run.checkpoint_path) if run.checkpoint_path else new()
    for epoch in run.epochs(total=10):
        for batch in run.steps(loader):
            train(model, batch)
        run.save(lambda path: store(model, path))

Nothing here raises anything of its own into training, apart from the `SystemExit(75)` with which a job that was asked
to stop ends, and, before it begins, `epochs()` where nobody says how many there are. Nothing waits for the network,
apart from the last report of a job that is about to end (and may have to wait until somebody ends it: `waiting.py`).
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from time import perf_counter
from typing import Any, Callable, Iterable, Iterator, NamedTuple, NoReturn, Optional, Sized, Tuple, TypeVar

from swell_sdk import signals
from swell_sdk.checkpoints import Checkpoints
from swell_sdk.environment import Environment
from swell_sdk.lastwords import LastWords
from swell_sdk.link import Link, connect
from swell_sdk.memory import peak_mib
from swell_sdk.news import Checkpoint, Inside, News
from swell_sdk.orders import Orders
from swell_sdk.repeatable import is_repeatable
from swell_sdk.steps import EpochSteps, SizedSteps, Steps
from swell_sdk.voice import say
from swell_sdk.waiting import wait_to_be_stopped

YIELDED = 75  # EX_TEMPFAIL: "run me again"
NO_EPOCHS = (
    "run.epochs() has no number of epochs, and outside Swell none is given; write run.epochs(20), or start the "
    "script with: swell run --epochs 20 -- python SCRIPT"
)
FLUSH_S = 3.0  # how long the end of a job waits for the server

Item = TypeVar("Item")


class Saving(NamedTuple):
    """How this job saves at any step."""

    write: Callable[[str], object]
    keep: int
    suffix: str


class Run:
    """One process of one attempt. Made by `attach`."""

    def __init__(self, told: Environment, *, rank: Optional[int] = None) -> None:
        """`rank`: where a framework knows better than the environment."""
        self.environment = told
        # Launchers that fork per GPU hand RANK=0 of the one task down and only set LOCAL_RANK.
        self.rank = (told.rank or max(0, told.local_rank)) if rank is None else rank
        self.world_size = told.world_size
        self.width = told.width
        self.restarted = told.restarted
        self.orders = Orders()
        self._checkpoints = Checkpoints(
            os.path.abspath(told.checkpoints or "checkpoints"),  # noqa: PTH100  keeps symbolic links as they are
            attempt=told.attempt,
            attempt_id=told.attempt_id or f"{told.job_id or 0}.{told.attempt}",
            may_restart=told.waits_to_be_stopped,
        )
        self.checkpoint_path: Optional[str] = None  #: whole, and to be resumed from; None: there is none
        self._inside: Optional[Inside] = None  #: how far into its first epoch this attempt begins; None: not at all
        self._first_epoch = self._find_checkpoint()
        self.news = News(self.rank, self._first_epoch, told.epochs_total, self.world_size)
        self._epoch: Optional[int] = None  #: whose body is running; None: none
        self._epoch_began = self._step_began = perf_counter()
        self._loops = 0  #: `steps` loops under way
        self.save_due_at = math.inf  #: of `perf_counter`, inside an epoch
        self._put_off_save()
        self._own: Optional[EpochSteps] = None  #: the loop that counts in the epoch under way; None: none has begun
        self._saving: Optional[Saving] = None  #: None: nobody has said how to save at any step
        self._saves: Tuple[int, Tuple[str, ...]] = (-1, ())  #: epochs done, and suffixes of what was saved of them
        self._is_saving_declared = False  #: by `on_yield`: what `save` is given does not count
        self._has_given_up = False  #: the server did not answer the last report
        self._last_words = LastWords(told.last_words, told.attempt_id)
        self.is_closed = False
        self.counts_whole_epochs = (
            False  #: the framework wants to be told the length of a whole epoch, and skips itself
        )
        self._is_silent = False  #: in a forked child
        self._is_heeding = False  #: SIGTERM means "yield now"
        self._link: Optional[Link] = None
        self._open()

    def _find_checkpoint(self) -> int:
        """Sets `checkpoint_path`. How many epochs are durable?"""
        told = self.environment
        notes = self._checkpoints
        self._unreported = notes.find(told.epochs_done, told.steps_done, told.checkpoint) if told.can_report else None
        if self._unreported is not None:
            self.restarted = True
            self.checkpoint_path = self._unreported.path
            self._inside = self._unreported.inside
            return self._unreported.epochs_done
        if told.checkpoint:
            path = self._checkpoints.folder / told.checkpoint
            if os.path.exists(path):  # noqa: PTH110  a folder that may not be read is no reason to raise
                self.checkpoint_path = str(path)
                if told.steps_done:
                    self._inside = Inside(told.steps_done, told.steps_total, told.samples_done)
            else:
                say("checkpoint", f"the checkpoint {path} that was reported is not there")
        return told.epochs_done

    def _open(self) -> None:
        if self.rank == 0 and self.environment.can_report:
            self._checkpoints.sweep()
            if self._unreported is not None:
                found = self._unreported
                self._announce(found.epochs_done, found.path, keep=0, inside=found.inside)
        self._link = connect(self.environment, self.news, self.orders, self._checkpoints)

    # What a script asks

    @property
    def folder(self) -> str:
        """Where checkpoints belong: the same for every attempt."""
        return str(self._checkpoints.folder)

    @property
    def epochs_done(self) -> int:
        """Finished, earlier attempts included."""
        return self.news.epochs_done

    @property
    def epochs_total(self) -> Optional[int]:
        return self.news.epochs_total

    @property
    def epoch(self) -> int:
        """Number of the epoch under way, or of the next one; from 0."""
        return self.epochs_done if self._epoch is None else self._epoch

    @property
    def begun_before(self) -> Optional[Inside]:
        """How much of that epoch earlier attempts have done; None: nothing."""
        return self._inside if self.epoch == self._first_epoch else None

    def should_yield(self) -> bool:
        """Has this job been asked to end here? For long epochs: save, then `leave()`."""
        self._heed_sigterm()
        return self.orders.want_stop(self.news.epochs_done)

    # What a script loops over

    def epochs(self, total: Optional[int] = None) -> Iterator[int]:
        """Numbers from 0, those of earlier attempts left out. `total`: all epochs; None: as the job's file says,
        and without end where it does not say. Ends the process with code 75 when it was asked to yield.

        Outside Swell there is no job's file, and nobody who would end it: without a number it is refused.
        """
        if total is not None:
            self.news.epochs_total = total
        if self.epochs_total is None and not self.environment.is_managed:
            raise ValueError(NO_EPOCHS)
        return self._each_epoch()

    def _each_epoch(self) -> Iterator[int]:
        while self.epochs_total is None or self.epochs_done < self.epochs_total:
            epoch = self.epochs_done
            self.begin_epoch(epoch)
            try:
                yield epoch
            except GeneratorExit:  # the script left the loop: that epoch is not counted
                self._epoch = None
                raise
            self.end_epoch()

    def steps(self, iterable: Iterable[Item]) -> Iterable[Item]:
        """The same items, timed. Has a length where the iterable has one.

        In an epoch that an earlier attempt has begun, its steps are left out. A job that can save at any step
        (`on_yield`, or `save` with a function that can be called again) ends here when it was asked to stop at this
        step.
        """
        return SizedSteps(self, iterable) if isinstance(iterable, Sized) else Steps(self, iterable)

    # What a script tells

    def save(
        self,
        write: Callable[[str], object],
        epochs_done: Optional[int] = None,
        keep: int = 2,
        suffix: str = "",
        *,
        at_steps: Optional[bool] = None,
    ) -> Optional[str]:
        """Make a checkpoint with `write(path)`, a file or a folder, and report it when it is durable. Its path.

        `epochs_done` is how many epochs it holds: in the body of an epoch that one included, but not inside its
        `steps`. None on ranks other than 0, where `write` is not called, and where the disk would not take it.

        `at_steps`: may `write` be called again when the job is asked to stop inside a later epoch? False: no, it
        writes what was copied for it; True: yes, it writes the model as it is then; None: yes if it refers to nothing
        that may be a copy (`repeatable.py`).
        """
        if self.rank != 0:
            return None
        if epochs_done is None:
            epochs_done = self._epochs_in_hand()
        self._remember(Saving(write, max(1, keep), suffix), epochs_done, at_steps)
        path = self._checkpoints.write(write, epochs_done=epochs_done, suffix=suffix)
        if path is None:
            return None
        self._announce(epochs_done, str(path), keep=max(1, keep))
        return str(path)

    def on_yield(self, write: Callable[[str], object], *, keep: int = 2, suffix: str = "") -> None:
        """Say how to save at any step: `write(path)` is called on rank 0 when the job is asked to stop inside an epoch.

        It has to write the model as it is then. What is given to `save` is used for that, too, from the first save
        on, unless a script may have made a copy for it: this function is used from the first step on, and instead.
        """
        self._is_saving_declared = True
        self._saving = Saving(write, max(1, keep), suffix)
        self.tell_that_it_can_stop()

    def metric(self, name: str, value: Any) -> None:
        """A number to be shown and kept; the newest counts. What is not finite is left out."""
        self.news.add_metric(name, value)

    def metrics(self, **values: Any) -> None:
        for name, value in values.items():
            self.news.add_metric(name, value)

    def report_memory(self, mib: float) -> None:
        """Peak of GPU memory, all GPUs of the job together; what torch says is reported without being asked."""
        self.news.add_memory(mib)

    def leave(self) -> NoReturn:
        """End because it was asked to: a last report, then exit code 75.

        Of the ranks that a launcher has started in one task the first speaks for all. To the launcher (torchrun,
        Lightning) any code but 0 of another is a failure, for which it ends the first one, in the midst of its save.
        """
        self.flush_yield()
        is_first = self.environment.local_rank <= 0 or not self.environment.has_launcher
        raise SystemExit(YIELDED if is_first else 0)

    def close(self) -> None:
        """A last report, within bounds; afterwards nothing is sent. At the end of the process this happens anyway."""
        self.finish()
        self.is_closed = True
        if self._is_heeding:
            signals.restore()
        link, self._link = self._link, None
        if link is not None:
            link.close()

    # What callbacks and KubeProfiler are made of

    def begin_epoch(self, epoch: int) -> None:
        """Number from 0. Ends the process instead when it was asked to yield, for which this is the place."""
        if self.should_yield():
            self.leave()
        self.note_epoch_begun(epoch)

    def note_epoch_begun(self, epoch: int) -> None:
        self._heed_sigterm()
        self._epoch, self._own = epoch, None
        self._epoch_began = self._step_began = perf_counter()
        self.news.begin_epoch(epoch + 1)
        self.news.position = epoch, 0
        if self._link is not None:
            self._link.tell_begun()

    def note_world(self, world_size: int) -> None:
        """Ranks that the framework started, of which the environment does not know."""
        self.world_size = self.news.world_size = world_size

    def step_done(self) -> None:
        """For frameworks that have the loop to themselves."""
        now = perf_counter()
        epoch, done = self.news.position
        self.news.position = epoch, done + 1
        self.news.steps += 1
        self.news.step_seconds += now - self._step_began
        self._step_began = now

    def end_epoch(self) -> None:
        """The epoch that began last is done."""
        epoch = self.epoch
        now = perf_counter()
        took_s: Optional[float] = now - self._epoch_began
        if self._own is not None:
            took_s = self._own.whole_s(now - self._epoch_began)
        elif self.begun_before is not None:
            took_s = None  # of a part of it only, and the framework counts the steps
        self.news.end_epoch(epoch + 1, took_s)
        peak = peak_mib()
        if peak is not None:
            self.news.add_memory(peak)
        self._epoch, self._epoch_began = None, now
        self.tell()

    def enter_steps(self, iterable: Iterable[Any]) -> Optional[EpochSteps]:
        """A `steps` loop begins. None: it is not the epoch's own."""
        self._loops += 1
        if self._epoch is None or self._loops > 1 or self._own is not None:
            return None
        self._own = EpochSteps(self._epoch, iterable, self.begun_before)
        self.news.steps_per_epoch = self._own.total
        return self._own

    def leave_steps(self) -> None:
        self._loops -= 1

    def stop_inside(self, own: EpochSteps) -> None:
        """After a step: end here if that was asked, with a checkpoint of this very step.

        Not after the last one: what the script does at the end of an epoch is yet to come, and it stops then.
        """
        if not self.news.can_stop_at_steps or own.is_over:
            return
        if self.stops_here():
            if self._saving is not None:
                self.save_inside(self._saving, own.epoch, own.inside())
            self.leave()

    def stops_here(self) -> bool:
        """After a step: was this rank asked to stop at it? Every rank finds the same answer for the same step."""
        return self.orders.may_stop and self.orders.want_stop_at_step(self.news.position, is_alone=self.world_size == 1)

    def _remember(self, saving: Saving, epochs_done: int, at_steps: Optional[bool]) -> None:
        """How the script saves is how it is saved at a step, unless that needs several calls, or might be a copy.

        The last function counts: what an earlier one writes may be a model that is trained no more.
        """
        if self._is_saving_declared:
            return
        number, suffixes = self._saves
        suffixes = (*(suffixes if number == epochs_done else ()), saving.suffix)
        may_repeat = is_repeatable(saving.write) if at_steps is None else at_steps
        self._saves = epochs_done, suffixes
        self._saving = saving if may_repeat and len(set(suffixes)) == 1 else None
        if self._saving is None and self.rank == 0:
            self.news.can_stop_at_steps = False  # the server asks for the end of an epoch again

    def save_if_due(self, own: EpochSteps) -> None:
        """Rank 0 saves alone: the others wait for it in their next step."""
        if self.rank == 0 and self._saving is not None and self._can_save_in(own) and not own.is_over:
            self.save_inside(self._saving, own.epoch, own.inside())
        self._put_off_save()

    def _put_off_save(self) -> None:
        if self.environment.checkpoint_every_s > 0:
            self.save_due_at = perf_counter() + self.environment.checkpoint_every_s

    def save_inside(self, saving: Saving, epoch: int, inside: Inside) -> None:
        """A checkpoint of this very step; on rank 0."""
        if self.rank != 0:
            return
        path = self._checkpoints.write(
            saving.write, epochs_done=epoch, steps_done=inside.steps_done, suffix=saving.suffix
        )
        if path is not None:
            self._announce(epoch, str(path), keep=saving.keep, inside=inside)

    def tell_that_it_can_stop(self) -> None:
        """Once it has timed a step, and can save: other ranks than 0 have nothing to save. Told with its questions."""
        if self.news.steps > 0 and self._own is not None and (self.rank != 0 or self._can_save_in(self._own)):
            self.tell_can_stop()

    def _can_save_in(self, own: EpochSteps) -> bool:
        """Who has given `on_yield` a function has said, too, that the order of the data follows from the epoch."""
        return self._saving is not None and (self._is_saving_declared or not own.is_order_random)

    def tell_can_stop(self) -> None:
        """This rank has timed a step, compares its steps with what it is asked, and its framework saves at any."""
        if not self.news.can_stop_at_steps:
            self.news.can_stop_at_steps = True
            if self._link is not None:
                self._link.ask_again()

    def must_stop(self, epochs_total: Optional[int] = None) -> bool:
        """Was it asked to stop, and is there anything left to do? `epochs_total`: where the framework knows."""
        total = self.epochs_total if epochs_total is None else epochs_total
        return self.should_yield() and (total is None or self.epochs_done < total)

    def durable(self, epochs_done: int, path: Optional[str] = None, inside: Optional[Inside] = None) -> None:
        """So many epochs are on the disk already. `path`: where; None: the job finds it by itself. `inside`: how far
        into the next one; None: at its beginning."""
        if self.rank == 0:
            self._announce(epochs_done, path, keep=0, inside=inside)

    def tell(self) -> None:
        """Send the news now rather than soon."""
        if self._link is not None:
            self._link.tell()

    def flush_yield(self) -> None:
        """Tell the server that this process ends because it was asked to. Waits for it, within bounds.

        Where somebody else is to end it (`waiting.py`), waits for that, too.
        """
        self.news.yielding = True
        self.finish()
        if self._link is not None and self.environment.waits_to_be_stopped:
            wait_to_be_stopped(self._link, self.news, self.orders)

    def finish(self) -> None:
        """What is left to say: the server is waited for once, within bounds; otherwise it is left where it is found."""
        if self._link is None or self.rank != 0:
            return
        if not self._has_given_up:
            self._has_given_up = not self._link.flush(FLUSH_S)
        report = self.news.take()
        if report is None:
            self._last_words.take_back()
        elif not self._link.is_over:
            self._last_words.leave(report)
            if report.checkpoint is not None:
                self._checkpoints.note(report.checkpoint)

    def fall_silent(self) -> None:
        """In a forked child: everything works, nothing is sent, the parent goes on as if there was no child."""
        self._is_silent = True
        link, self._link = self._link, None
        # Anew: a thread that is not here may have held their locks.
        self.news = News(self.rank, self.news.epochs_done, self.news.epochs_total, self.world_size)
        self.orders = Orders()
        if link is not None:
            link.forget()

    def _heed_sigterm(self) -> None:
        """From the first time somebody would notice. Before, SIGTERM ends the process as ever: nothing is lost."""
        if self._link is not None and not self._is_heeding:
            self._is_heeding = True
            signals.heed(self.orders)

    def _epochs_in_hand(self) -> int:
        if self._epoch is None:
            return self.epochs_done
        return self._epoch if self._loops else self._epoch + 1

    def _announce(self, epochs_done: int, path: Optional[str], *, keep: int, inside: Optional[Inside] = None) -> None:
        if self._is_silent:
            return
        self._put_off_save()
        relative = None if path is None else self._checkpoints.relative(path)
        checkpoint = Checkpoint(epochs_done, relative, time.time(), keep, inside)
        if self._link is None and not self.environment.can_report:
            if path is not None:
                self._checkpoints.prune(Path(path).name, keep)
            return
        if relative is not None or self._checkpoints.may_restart:
            self._checkpoints.note(checkpoint)
        self.news.add_checkpoint(checkpoint)
        self.tell()
