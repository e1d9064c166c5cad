"""Which launches is this worker responsible for? `launch.json` beside the tasks of each says it to the next worker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.machine.worker_folder import WorkerFolder
from swell.model.job import AttemptId
from swell.model.launch import Launch

NAME = "launch.json"


@dataclass(frozen=True, slots=True)
class HeldLaunch:
    """A launch as it was noted, with its port and the boot in which it was first noted."""

    launch: Launch
    port: int
    boot_id: str

    @classmethod
    def parse(cls, document: dict[str, Any]) -> HeldLaunch:
        return cls(Launch.from_document(document["launch"]), int(document["port"]), str(document["boot_id"]))


class HeldLaunches:
    def __init__(self, own: WorkerFolder, boot_id: str, complain: Callable[[str, Exception], None]) -> None:
        self._own = own
        self._boot_id = boot_id
        self._complain = complain

    def all(self) -> Iterator[HeldLaunch]:
        """Those that can be read, in the order of their names."""
        found = (self._parse(path) for path in sorted(self._own.tasks.glob(f"[0-9]*/{NAME}")))
        return (held for held in found if held is not None)

    def noted(self, attempt: AttemptId) -> HeldLaunch | None:
        """None: nothing is noted of it, or nothing that can be read."""
        return self._parse(self._path(attempt))

    def is_noted(self, attempt: AttemptId) -> bool:
        return self._path(attempt).exists()

    def write(self, launch: Launch, *, port: int) -> HeldLaunch:
        """On disk before anything of it begins: after a power cut this says which boot it belonged to."""
        before, path = self.noted(launch.attempt), self._path(launch.attempt)
        held = HeldLaunch(launch, port, before.boot_id if before else self._boot_id)
        beside = path.with_name(f".{NAME}")
        with beside.open("w") as file:
            json.dump({"launch": launch.to_document(), "port": port, "boot_id": held.boot_id}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        return held

    def forget(self, attempt: AttemptId) -> None:
        self._path(attempt).unlink(missing_ok=True)

    def _path(self, attempt: AttemptId) -> Path:
        return self._own.tasks / str(attempt) / NAME

    def _parse(self, path: Path) -> HeldLaunch | None:
        try:
            document = self._own.read_json(path)
            return HeldLaunch.parse(document) if document else None
        except (KeyError, TypeError, ValueError, AttributeError, IsADirectoryError) as error:
            self._complain(f"{path} cannot be read and is treated as missing: {error!r}", error)
            return None
