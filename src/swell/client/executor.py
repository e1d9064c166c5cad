"""How are functions run as jobs? `Executor` is one of `concurrent.futures`: every call is a job of its own.

    from swell.client import Executor

    with Executor(gpus=1, time="2h") as executor:
        losses = list(executor.map(train, [0.1, 0.01, 0.001]))

One thread of an executor watches all its jobs and settles their futures, so that `wait`, `as_completed` and
`asyncio.wrap_future` of the standard library work as they do with its own pools. A job that is preempted or retried
runs its call again from the beginning.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from itertools import chain, islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from swell.client.call import read_result, write_call
from swell.client.client import Client
from swell.client.embedded import connect
from swell.client.job import Job
from swell.client.needs import Needs
from swell.errors import NotFound, Rejected, SwellError
from swell.machine.processes import module_argv

P = ParamSpec("P")
T = TypeVar("T")

LOOK_S = 0.5  # how often all jobs are looked at while the oldest one is waited for
FOLDER = ".cache/swell/calls"  # in the user's home, which jobs on other machines usually share


class CallFailed(SwellError):
    """The job of a call ended without a result: killed, over its time limit, out of memory."""


class CallFuture(futures.Future[T]):
    """A call that has been submitted. `job` is what it runs as."""

    def __init__(self, job: Job, folder: Path) -> None:
        super().__init__()
        self.job = job
        self.folder = folder  #: of the call
        self._ending = threading.Lock()  # it is cancelled, or it has ended: whoever comes first

    def running(self) -> bool:
        return not self.done() and self.job.state in ("starting", "running", "stopping")

    def cancel(self) -> bool:
        """Also a call that runs: its job is cancelled. False: it has ended before."""
        with self._ending:
            if self.done():
                return self.cancelled()
            if self.job.cancel().state in ("succeeded", "failed"):
                return False
            return self._mark_cancelled()

    def settle(self) -> None:
        """Its job has ended."""
        with self._ending:
            if self.done():
                return
            outcome = read_result(self.folder)
            if outcome is None and self.job.state == "cancelled":
                self._mark_cancelled()
                return
            self.set_running_or_notify_cancel()
            if outcome is None:
                self.set_exception(_without_result(self.job))
            elif outcome.error is not None:
                self.set_exception(outcome.error)
            else:
                self.set_result(outcome.value)

    def fail(self, problem: Exception) -> None:
        """Nobody can tell any more how it ends."""
        with self._ending:
            if not self.done():
                self.set_running_or_notify_cancel()
                self.set_exception(problem)

    def _mark_cancelled(self) -> bool:
        super().cancel()
        self.set_running_or_notify_cancel()  # those who wait for several futures are told only here
        return True


def _without_result(job: Job) -> CallFailed:
    reason = job.document.get("reason") or {}
    said = f": {reason['message']}" if reason.get("message") else ""
    return CallFailed(f"job {job.id} ({job.name}) {job.state} and left no result{said}; see: swell logs {job.id}")


class Executor(futures.Executor):
    """Calls as jobs. `needs` are those of `Client.submit`: what every call is given.

    `client`: None: the server that every command asks. `folder`: where calls and results are kept meanwhile; None: in
    the home folder. `name`: what the jobs are called; None: as their functions.
    """

    def __init__(
        self,
        client: Client | None = None,
        *,
        folder: Path | str | None = None,
        name: str | None = None,
        **needs: Unpack[Needs],
    ) -> None:
        self._client = connect() if client is None else client
        _check_place(self._client, needs)
        parent = Path.home() / FOLDER if folder is None else Path(folder)
        parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=parent.absolute()))  # nobody else reads or writes it
        self._name = name
        self._needs = needs
        self._lock = threading.Lock()  # a client serves one thread at a time
        self._pending: dict[int, CallFuture[Any]] = {}
        self._calls = 0
        self._is_shut_down = False
        self._work = threading.Condition()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="swell-executor")
        self._watcher.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[T]:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            folder = self._folder / str(self._calls)
            folder.mkdir()
            self._calls += 1
            try:
                write_call(folder, fn, args, kwargs)
                words = module_argv("swell.client.call", str(folder))
                job = self._client.submit(words, name=self._name or _job_name(fn), **self._needs)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        future: CallFuture[T] = CallFuture(Job(Client(self._client.state), job.document), folder)
        with self._work:
            self._pending[job.id] = future
            self._work.notify()
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """As the standard library's: in order; a job for each `chunksize` calls."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        chunks = list(_chunks(zip(*iterables, strict=False), chunksize))
        found = super().map(_call_each, [fn] * len(chunks), chunks, timeout=timeout)
        return chain.from_iterable(cast("Iterator[list[T]]", found))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Jobs that were submitted go on, unless they are cancelled. Without `wait` their results are still collected,
        as long as this process lives."""
        with self._lock:
            self._is_shut_down = True
        with self._work:
            left = list(self._pending.values())
            self._work.notify()
        if cancel_futures:
            for future in left:
                if not future.running():
                    future.cancel()
        if wait:
            self._watcher.join()

    # -- watching ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        client = Client(self._client.state)
        while (oldest := self._next()) is not None:
            try:
                self._look(client, oldest)
            except Exception as problem:  # noqa: BLE001  nobody else would tell those who wait
                self._give_up(problem)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _next(self) -> int | None:
        """The job that was submitted first of those that have not ended. None: there will be none."""
        with self._work:
            self._work.wait_for(lambda: self._pending or self._is_shut_down)
            return next(iter(self._pending), None)

    def _look(self, client: Client, oldest: int) -> None:
        with self._work:
            pending = dict(self._pending)
        first = pending[oldest]
        first.job.document = _as_it_is(client, first.job, wait_s=LOOK_S)
        active = {job.id: job.document for job in client.jobs()} if len(pending) > 1 else {}
        for number, future in pending.items():
            if number != oldest:
                future.job.document = active.get(number) or _as_it_is(client, future.job)
            if future.job.has_ended:  # one that was cancelled may still be stopping
                self._settle(number, future)

    def _settle(self, number: int, future: CallFuture[Any]) -> None:
        future.settle()
        shutil.rmtree(future.folder, ignore_errors=True)
        with self._work:
            self._pending.pop(number, None)

    def _give_up(self, problem: Exception) -> None:
        with self._work:
            left = list(self._pending.values())
            self._pending.clear()
        for future in left:
            future.fail(problem)


def _as_it_is(client: Client, job: Job, *, wait_s: float = 0.0) -> dict[str, Any]:
    """Of a job that somebody has deleted what was known before, as one that is cancelled."""
    try:
        return Job(client, job.document).refresh(wait_s=wait_s).document
    except NotFound:
        return {**job.document, "state": "cancelled"}


def _check_place(client: Client, needs: Needs) -> None:
    if client.is_elsewhere:
        raise Rejected(
            "an Executor needs a server on this machine, because its jobs read the call from a folder of yours; submit "
            "a command to a server elsewhere with Client.submit"
        )
    for field in ("array", "tasks", "image"):
        if needs.get(field):
            raise Rejected(f"an Executor runs each call as one process of this Python; leave {field} out")


def _job_name(function: Callable[..., Any]) -> str:
    """As far as a name allows it: `<lambda>` and `partial` objects have none."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() and name.isascii() and name[0] != "_" else "call"


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    while chunk := list(islice(items, size)):
        yield chunk


def _call_each(function: Callable[..., T], chunk: Sequence[tuple[Any, ...]]) -> list[T]:
    return [function(*args) for args in chunk]
