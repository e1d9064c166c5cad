"""Where does a Swell installation keep what it must not forget, and who may use it?

The state folder belongs to one user and one server. Every command finds it by `--state`, then `SWELL_STATE`,
then the user's state folder. Standard library only, and light: every command line imports it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swell.errors import Denied, Rejected, Unavailable
from swell.machine.private_folder import refuse_if_others_may_write
from swell.machine.sockets import BOX_STATE, UnixConnection, box_socket

OTHERS_READ = 0o044  # of a file's mode
#: File systems on which SQLite's write-ahead log or our locks do not work.
NETWORK_FILE_SYSTEMS = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.glusterfs",
        "fuse.gcsfuse",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    ]
)
SECRET_BYTES = 32
SECRET_CHARACTERS_MIN = 16  # of one that somebody else has made
EXIT_ALREADY_SERVED = 3  # of a server that found the folder's lock taken
PROBE_S_MAX = 5.0  # asking who holds a lock takes microseconds; this is for one that was stopped in the middle
PROBE_BYTES = 256 * 1024  # what a new database and its log take before the first job


class StateFolder:
    """The names of everything inside, and the few operations that several processes share."""

    def __init__(self, root: Path, socket: Path | None = None) -> None:
        self.root = root
        self.socket = socket  #: of this machine's box server; None: the folder is private to one user
        self.database = root / "swell.db"
        self.token = root / "token"
        self.worker_token = root / "worker-token"
        self.job_secret = root / "job-secret"  # what the tokens of jobs are made with
        self.retired_job_secrets = root / "job-secrets-retired.json"  # those that running jobs were told
        self.audit_cursor = root / "audit-told.json"  # which event the audit's file or syslog has heard of last
        self.server_file = root / "server.json"
        self.config = root / "config.json"
        self.server_log = root / "server.log"
        self.worker_log = root / "worker.log"
        self.tasks = root / "tasks"
        self.files = root / "files"  # of jobs that bring their own, and what they send back
        self.checkpoints = root / "checkpoints"
        self.tokens = root / "tokens"  # of a box server: a file per attempt, for its user
        self.library = root / "library"  # of a box server: the in-job library, where users' jobs can read it
        self.sockets = root / "sockets"  # what jobs reach the server through; containers mount it

    @classmethod
    def locate(cls, option: str | None = None) -> StateFolder:
        """What was named; else this machine's box server; else one's own folder."""
        chosen = option or os.environ.get("SWELL_STATE")
        if chosen:
            return cls(Path(chosen).expanduser().absolute())
        socket = box_socket()
        if socket is not None:
            return cls(BOX_STATE, socket)
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
        return cls(Path(base) / "swell")

    def __str__(self) -> str:
        return str(self.root) if self.socket is None else f"this machine ({self.socket})"

    @property
    def server_socket(self) -> Path:
        """Where commands and the worker reach the server."""
        return self.socket or self.root / "server.sock"

    def connection(self, *, timeout: float) -> UnixConnection:
        """The one way of ours to the server: where it listens, nobody else can while it is away.

        Never the port in server.json: any user of the machine can take that, be shown tokens and give orders.
        """
        return UnixConnection(self.server_socket, timeout=timeout)

    def prepare(self) -> None:
        """Make sure that we can keep promises here; otherwise say why not and change nothing."""
        kind = network_file_system(self.root, Path("/proc/self/mountinfo").read_bytes().splitlines())
        if kind is not None:
            raise Rejected(
                f"the state folder {self.root} is on a network file system ({kind}), where the database's log "
                f"and locks do not work; use a local folder: --state /var/tmp/swell-{os.getuid()} or SWELL_STATE"
            )
        self.refuse_if_others_may_write()
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.refuse_if_others_may_write()  # somebody else may have made it a moment ago; from here on nobody can
            self._probe()
            self.tasks.mkdir(mode=0o700, exist_ok=True)
            self.checkpoints.mkdir(mode=0o700, exist_ok=True)
            self.sockets.mkdir(mode=0o700, exist_ok=True)
            if self.socket is not None:
                self._let_users_through()
        except OSError as error:
            raise Unavailable(disk_problem(error, self.root)) from error

    def refuse_if_others_may_write(self) -> None:
        """Before anything here is written, or believed."""
        if self._is_closed_to_us():
            raise Denied(self.foreign())
        own = (self.tasks, self.tasks / ".environments", self.checkpoints, self.library, self.sockets)
        for folder in (self.root, *own):
            refuse_if_others_may_write(folder)

    def _is_closed_to_us(self) -> bool:
        """Somebody else's, who lets nobody in: there is nothing to believe or to run."""
        try:
            owner = self.root.stat().st_uid
        except OSError:
            return False
        return owner not in (os.geteuid(), 0) and not os.access(self.root, os.R_OK | os.X_OK)

    def _let_users_through(self) -> None:
        """Users have folders of their own inside; they may pass through to them, and list or make nothing."""
        self.tokens.mkdir(mode=0o711, exist_ok=True)
        self.library.mkdir(mode=0o711, exist_ok=True)
        for folder in (self.root, self.checkpoints, self.tokens, self.library, self.sockets):
            folder.chmod(0o711)  # whatever the umask

    def runtime_folder(self, uid: int) -> Path:
        """Of a box server: where the container runtime of this user keeps what must not outlive a reboot."""
        return self.users_runtime / str(uid)

    @property
    def users_runtime(self) -> Path:
        """Of a box server: the folder of those folders."""
        assert self.socket is not None
        return self.socket.parent / "users"

    def _probe(self) -> None:
        """A few real blocks: an empty file can be made on a full disk."""
        probe = self.root / f".probe-{os.getpid()}"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)

    def lock(self, name: str) -> Lock | None:
        """The lock of that name, or None while another process holds it."""
        try:
            descriptor = os.open(self.root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(disk_problem(error, self.root)) from error
        try:
            if not _take(descriptor):
                os.close(descriptor)
                return None
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except OSError as error:
            os.close(descriptor)
            raise Unavailable(disk_problem(error, self.root)) from error
        return Lock(descriptor)

    def lock_holder(self, name: str) -> int | None:
        """The process that holds the lock; None when nobody does."""
        path = self.root / f"{name}.lock"
        try:
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read() or 0)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise Denied(self.foreign()) from error
        return None

    def older_server(self) -> int | None:
        """The process that serves this folder without the socket, as earlier versions did; None: there is none."""
        about = self.serving()
        return int(about["pid"]) if about and "socket" not in about else None

    def serving(self) -> dict[str, Any]:
        """What the server that holds this folder wrote of itself when it was ready; empty: not yet, or none does."""
        holder, about = self.lock_holder("server"), self.read_json(self.server_file)
        return about if holder is not None and about.get("pid") == holder else {}

    def foreign(self) -> str:
        return (
            f"the state folder {self.root} belongs to another user and cannot be read; name another folder with --state"
        )

    def secret(self, path: Path) -> str:
        """The secret in this file, made on first use, readable by its owner only."""
        found = path.read_text().strip() if path.exists() else ""
        if not found:  # not there, or left empty by a full disk
            found = secrets.token_urlsafe(SECRET_BYTES)
            try:
                write_private(path, found + "\n")
            except OSError as error:
                raise Unavailable(disk_problem(error, self.root)) from error
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return found

    def keep_secret(self, path: Path, source: Path) -> None:
        """Somebody else makes this secret: what their file says is ours from now on, too."""
        try:
            given = source.read_text().strip()
        except OSError as error:
            raise Rejected(
                f"the token file {source} cannot be read: {error.strerror}; create it, or name another file"
            ) from error
        if len(given) < SECRET_CHARACTERS_MIN:
            raise Rejected(
                f"the token file {source} has {len(given)} characters, which is too easy to guess; write at "
                f"least {SECRET_CHARACTERS_MIN}: openssl rand -base64 32"
            )
        if not path.exists() or path.read_text().strip() != given:
            write_private(path, given + "\n")

    def read_json(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
            return {}
        except PermissionError as error:
            raise Denied(self.foreign()) from error
        return found if isinstance(found, dict) else {}

    def write_json(self, path: Path, document: dict[str, Any]) -> None:
        """Whole or not at all."""
        write_private(path, json.dumps(document, indent=1))


def write_private(path: Path, text: str) -> None:
    """Mode 0600. Written beside, brought to the disk, then renamed; a full disk leaves what was there before.

    Two threads may write one file at once: each writes beside it under a name of its own.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def exposure(file: Path | int) -> str:
    """Who else may read a file with a secret, in words; empty: nobody, or it is no file (a terminal, a pipe)."""
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116  it may be a descriptor
    except OSError:  # whoever reads it says what is wrong
        return ""
    if not stat.S_ISREG(mode) or not mode & OTHERS_READ:
        return ""
    return f"other users of this machine may read it (mode {stat.S_IMODE(mode):04o})"


def _take(descriptor: int) -> bool:
    """Somebody who only asks who the holder is (`lock_holder`) holds it for an instant, too: that is waited out."""
    until = time.monotonic() + PROBE_S_MAX
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False  # held for itself alone: a real holder
    return False


class Lock:
    """Held until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def network_file_system(path: Path, mounts: Iterable[bytes]) -> str | None:
    """The type of the network file system that a path is (or would be) on; None when it is local."""
    name = file_system(path, mounts)
    return name if name in NETWORK_FILE_SYSTEMS else None


def file_system(path: Path, mounts: Iterable[bytes]) -> str:
    """The type of the file system that a path is (or would be) on.

    Mounts are lines of /proc/PID/mountinfo: bytes, because a mount point is any bytes.
    """
    target = os.fsencode(os.path.realpath(path))
    best, kind = b"", b""
    for line in mounts:
        before, _, after = line.partition(b" - ")
        point = _unescape(before.split()[4])
        inside = target == point or target.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the earlier one
            best, kind = point, after.split()[0]
    return os.fsdecode(kind)


def _unescape(point: bytes) -> bytes:
    """The kernel writes space, tab, newline and backslash as three octal digits."""
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), point)


def disk_problem(error: OSError, folder: Path) -> str:
    """What a person should know when the state folder cannot be written."""
    what = {
        errno.ENOSPC: ("its disk is full", "free some space"),
        errno.EDQUOT: ("your disk quota is exceeded", "free some space"),
        errno.EROFS: ("it is read-only", "remount it writable"),
        errno.EACCES: ("you do not have permission to write there", "change its permissions"),
        errno.EPERM: ("you do not have permission to write there", "change its permissions"),
        errno.EEXIST: ("a file with that name exists", "move it away"),
        errno.ENOTDIR: ("a part of the path is a file, not a folder", "correct the path"),
    }
    true, do = what.get(error.errno or 0, (str(error), "fix that"))
    return f"the state folder {folder} cannot be written: {true}; {do}, or name another folder with --state"
