"""What does a pool keep on its own machine?

Its ledger, its key, the token for its workers and its log. One process at a time: a lock that the kernel releases.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from swell.errors import Conflict, Unavailable
from swell.machine.private_folder import refuse_if_others_may_write
from swell.machine.state_folder import write_private

RENEWED_S = 7 * 86400.0  # a worker that is launched now must live on its token for as long


class PoolFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = root / "workers.json"
        self.log = root / "pool.log"
        self.command = root / "command.json"  #: how it was started
        self.ready = root / "ready"  #: written after the first turn
        self._key = root / "key"
        self._token = root / "worker-token.json"
        self._lock = root / "lock"

    def prepare(self) -> None:
        refuse_if_others_may_write(self.root)
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            refuse_if_others_may_write(self.root)  # somebody else may have made it a moment ago
            self.root.chmod(0o700)
        except OSError as error:
            raise Unavailable(f"the folder {self.root} of the pool cannot be used: {error.strerror}") from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """By this process; raises `Conflict` where another one has it."""
        self.prepare()
        with self._lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Conflict(
                    f"a pool with the folder {self.root} is already running (process {self.holder or 'unknown'}); "
                    "`swell pool ps` shows it"
                ) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    @property
    def holder(self) -> int | None:
        """The process that runs it; None: nobody does."""
        try:
            with self._lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    text = file.read().strip()
                    return int(text) if text.isdigit() else None
        except OSError:
            pass
        return None

    def key(self) -> str:
        """Made once: by it the server knows this pool again."""
        with contextlib.suppress(OSError):
            if found := self._key.read_text().strip():
                return found
        made = secrets.token_hex(16)
        write_private(self._key, made)
        return made

    def worker_token(self, make: Callable[[], tuple[str, float]], now: float) -> str:
        """The last one while it is good for long enough, else a new one."""
        try:
            kept = json.loads(self._token.read_text())
            if kept["expires_at"] - now > RENEWED_S:
                return str(kept["token"])
        except (OSError, ValueError, LookupError, TypeError):
            pass
        token, expires_at = make()
        write_private(self._token, json.dumps({"token": token, "expires_at": expires_at}))
        return token
