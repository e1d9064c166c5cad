"""What does a worker keep in its own folder?

Nothing here is the server's. On the server's own machine the two share a folder, because tasks write their logs where
the server reads them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from swell.machine.removal import remove_tree
from swell.machine.state_folder import Lock, StateFolder

GIVEN_TOKEN = "given-token"  # noqa: S105  in a worker's folder: the token that whoever started the worker put there


class WorkerFolder:
    """The names of everything inside."""

    def __init__(self, root: Path) -> None:
        self._folder = StateFolder(root)
        self.root = root
        self.tasks = self._folder.tasks
        self.environments = self.tasks / ".environments"  # callers', by digest
        self.store = self.tasks / ".store"  # the id of the store that the tasks belong to
        self.cgroups = self.tasks / ".cgroups"
        self.tokens = self._folder.tokens  # where tasks run as their users: a file per attempt
        self.checkpoints = self._folder.checkpoints
        self.library = self._folder.library  # where those can read it
        self.cache = root / "cache"  # files of jobs that were fetched
        self.heard = root / "server-heard.json"  # when a worker elsewhere last heard its server
        self.key = root / "worker-key"  # by which the server knows this worker again

    def __str__(self) -> str:
        return str(self.root)

    def prepare(self) -> None:
        """Refuses a network file system, where locks do not work, and a folder that others may have prepared."""
        self._folder.prepare()

    def lock(self) -> Lock | None:
        """None: another worker uses this folder."""
        return self._folder.lock("worker")

    @property
    def lock_holder(self) -> int | None:
        return self._folder.lock_holder("worker")

    def remove(self, *, token_file: Path) -> None:
        """All that a worker has made here, once it has left for good: what else somebody keeps in the folder stays.

        A token file of that name in it is the one that whoever started the worker has made for it.
        """
        for name in (self.tasks.name, self.cache.name, self.checkpoints.name, self._folder.sockets.name):
            with contextlib.suppress(OSError):  # what cannot be removed stays
                while not remove_tree(self.root, name):
                    pass
        for file in (self.heard, self.key, self.root / "worker.lock"):
            with contextlib.suppress(OSError):
                file.unlink()
        if token_file == self.root / GIVEN_TOKEN:
            token_file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def secret_key(self) -> str:
        return self._folder.secret(self.key)

    def read_json(self, path: Path) -> dict[str, Any]:
        return self._folder.read_json(path)

    def write_json(self, path: Path, document: dict[str, Any]) -> None:
        self._folder.write_json(path, document)
