"""Sends to Slurm's commands and receives what they print; decides nothing."""

from __future__ import annotations

import getpass
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from swell.errors import NotFound, Rejected, SwellError, Unavailable
from swell.model.pool import pool_of
from swell.pools.backend import BackendWorker, WorkerOrder, WorkerState
from swell.pools.options import PoolOptions
from swell.pools.slurm.parse import (
    JOB_ID,
    NO_ENDING,
    SACCT_FIELDS,
    SEPARATOR,
    SQUEUE_FORMAT,
    STATES,
    SlurmEnding,
    SlurmJob,
    failure,
    is_over,
    parse_ending,
    parse_sacct,
    parse_setting,
    parse_squeue,
    parse_submitted,
    worker_of,
)
from swell.pools.slurm.render import (
    SlurmOptions,
    check_log_folder,
    pool_comment,
    render_arguments,
    render_environment,
    render_script,
)

ANSWER_S_MAX = 60.0  # Slurm's own commands give up after about as long
LOG_PIECE = 1 << 16
ENDINGS_KEPT_MAX = 1000


class SlurmBackend:
    def __init__(self, options: PoolOptions, slurm: SlurmOptions) -> None:
        self._options = options
        self._slurm = slurm
        self._logs = slurm.log_folder or options.folder / "logs"
        check_log_folder(self._logs)
        self._comment = pool_comment(options.name, options.worker.server)
        self._config: str | None = None  #: None: not asked yet
        self._endings: dict[str, SlurmEnding] = {}  #: of jobs that have ended: they are asked for once

    def observe(self) -> tuple[BackendWorker, ...]:
        doing = "asking slurm for the workers of the pool"
        user = getpass.getuser()
        listed = self._run(
            doing, ["squeue", "--noheader", "--states=all", f"--user={user}", f"--format={SQUEUE_FORMAT}"]
        )
        jobs = {job.id: job for job in (*self._accounted(user), *parse_squeue(listed))}  # the queue knows better
        found = (self._worker(job) for job in jobs.values())
        return tuple(sorted((one for one in found if one is not None), key=lambda one: (one.id, int(one.backend_id))))

    def launch(self, order: WorkerOrder) -> str:
        try:
            self._logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Rejected(f"the folder for logs {self._logs} cannot be made: {error.strerror}") from error
        doing = f"submitting worker {order.id} to slurm"
        words = ["sbatch", *render_arguments(order, self._slurm, self._logs)]
        environment = render_environment(os.environ, order.token)
        return parse_submitted(self._run(doing, words, given=render_script(order, self._logs), env=environment))

    def cancel(self, backend_id: str, *, is_forced: bool = False) -> None:
        """A worker that runs is told by a signal of its own, so that its tasks hear of it from the worker."""
        if not JOB_ID.fullmatch(backend_id):
            raise Rejected(f"{backend_id[:100]!r} is no job of slurm")
        gently = [["scancel", "--state=PENDING", backend_id], ["scancel", "--batch", "--signal=TERM", backend_id]]
        for words in [["scancel", backend_id]] if is_forced else gently:
            self._cancel(words, backend_id)

    def _cancel(self, words: Sequence[str], backend_id: str) -> None:
        try:
            self._run(f"ending the job {backend_id} of slurm", words)
        except SwellError as error:
            if not is_over(str(error)):
                raise

    def logs(self, backend_id: str) -> Iterator[bytes]:
        if not JOB_ID.fullmatch(backend_id):
            raise NotFound(f"{backend_id[:100]!r} is no job of slurm")
        found = sorted(self._logs.glob(f"{self._options.name}-*-{backend_id}.out"))
        if not found:
            raise NotFound(
                f"there is no log of job {backend_id} in {self._logs}: it has not started, or its node does not share "
                "that folder (--log-dir)"
            )
        return _pieces(found[0])

    def render(self, order: WorkerOrder) -> str:
        arguments = render_arguments(order, self._slurm, self._logs)
        return f"{shlex.join(('sbatch', *arguments))} <<'SCRIPT'\n{render_script(order, self._logs)}SCRIPT\n"

    # -- the commands ----------------------------------------------------------------------------------------------

    def _worker(self, job: SlurmJob) -> BackendWorker | None:
        has_ended = STATES.get(job.word) is WorkerState.ENDED
        is_ours = pool_of(job.name) == self._options.name and job.comment in (self._comment, "")
        return worker_of(
            job,
            pool=self._options.name,
            comment=self._comment,
            log=self._logs,
            ending=self._ending(job) if has_ended and is_ours else NO_ENDING,
            tracks_all=self._setting("ProctrackType") == "proctrack/cgroup" if has_ended and is_ours else False,
        )

    def _ending(self, job: SlurmJob) -> SlurmEnding:
        """How it ended; what cannot be asked any more is left out."""
        if job.id not in self._endings:
            try:
                said = self._run("asking how it ended", ["scontrol", "--oneliner", "show", "job", job.id])
            except SwellError:
                said = f"ExitCode={job.exit}"
            if len(self._endings) >= ENDINGS_KEPT_MAX:
                self._endings.clear()
            self._endings[job.id] = parse_ending(said)
        return self._endings[job.id]

    def _accounted(self, user: str) -> tuple[SlurmJob, ...]:
        """What has ended and is in the queue's listing no more, where there is accounting; an extra, so it may fail."""
        if self._setting("AccountingStorageType") in ("", "accounting_storage/none"):
            return ()
        words = ["sacct", "--noheader", "--allocations", "--parsable2", f"--delimiter={SEPARATOR}", f"--user={user}"]
        words += ["--starttime=now-1hours", f"--format={','.join(SACCT_FIELDS)}"]
        try:
            jobs = parse_sacct(self._run("asking slurm's accounting", words))
        except SwellError:
            return ()
        return tuple(job for job in jobs if STATES.get(job.word) is WorkerState.ENDED)

    def _setting(self, name: str) -> str:
        """Of slurm.conf; empty: not there, or nobody could be asked."""
        if self._config is None:
            try:
                self._config = self._run("asking slurm for its settings", ["scontrol", "show", "config"])
            except SwellError:
                return ""
        return parse_setting(self._config, name)

    def _run(self, doing: str, words: Sequence[str], *, given: str = "", env: dict[str, str] | None = None) -> str:
        """What it prints. Never through a shell."""
        try:
            done = subprocess.run(
                words,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_S_MAX,
                env=env,
                check=False,
            )
        except FileNotFoundError as error:
            raise Rejected(
                f"{doing}: {words[0]} is not on PATH; run the pool where Slurm's commands are, such as on a login node"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{doing}: {words[0]} has not answered within {ANSWER_S_MAX:g} s") from error
        except OSError as error:
            raise Unavailable(f"{doing}: {words[0]} cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            raise failure(doing, done.stderr or done.stdout, done.returncode)
        return done.stdout


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(LOG_PIECE):
            yield piece
