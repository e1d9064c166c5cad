"""An engine on a real control plane, driven by hand in place of a controller."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from swell.engines.kubernetes import ApiClient, KubernetesEngine, find_access
from swell.engines.kubernetes.logs.keeper import LogKeeper
from swell.engines.logfolder import LogFolder
from swell.model.assignment import Assignment
from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import LaunchRole, RunSeen, TaskSeen
from swell.model.plan import Slot
from swell.model.resources import NOTHING

PATIENCE_S = 60.0
Place = tuple[str, int, int]  # node, GPUs, role


class Drive:
    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        *,
        store: str = "teststore",
        before_write: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.store = store
        self.port = ApiClient(find_access(kubeconfig), guard=before_write)
        self.manifests: dict[str, dict[str, Any]] = {}
        self.logs = LogKeeper(self.port, folder)
        self._woken = threading.Event()
        self.engine = KubernetesEngine(
            self.port,
            lambda wanted: self.manifests[wanted.manifest],
            self.logs,
            LogFolder(folder),
            store=store,
            namespace="default",
            wake=self._woken.set,
            **{"of_jobs": lambda: frozenset({"default"}), **options},
        )
        self.tasks: dict[tuple[AttemptId, int], TaskSeen] = {}
        self.runs: dict[tuple[AttemptId, str], RunSeen] = {}
        self.nodes: dict[str, Node] = {}
        self.emptied: dict[AttemptId, tuple[int, ...]] = {}

    def __enter__(self) -> Drive:
        assert self.engine.cluster.start(30.0) is None
        self.engine.open(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        self.logs.close()
        self.port.close()

    def start(
        self,
        attempt: AttemptId,
        manifest: dict[str, Any],
        places: Mapping[int, Place],
        *,
        roles: int = 1,
        array: str = "",
        own: Mapping[str, str] | None = None,
        share_mib: int = 0,
        first_gpu: int = 0,
        spread: bool = False,
        **changes: Any,
    ) -> None:
        key = json.dumps(manifest, sort_keys=True)
        self.manifests[key] = manifest
        nodes = tuple(dict.fromkeys(node for node, _, _ in places.values()))
        used: dict[str, int] = {}
        slots: list[Slot] = []
        for number, (node, gpus, _) in sorted(places.items()):
            first = used.get(node, first_gpu)
            used[node] = first if share_mib and not spread else first + gpus
            devices = tuple(f"gpu-{number}" for number in range(first, first + gpus))
            slots.append(Slot(number, node, NOTHING, devices))
        assignment = Assignment(
            attempt=attempt,
            generation=1,
            revision=1,
            name=manifest["metadata"]["name"],
            width=len(places),
            roles=tuple(LaunchRole(()) for _ in range(roles)),
            slots=tuple(slots),
            role_of_rank=tuple(role for _, (_, _, role) in sorted(places.items())),
            indices=array,
            is_array=bool(array),
            tasks=len(places),
            nodes=nodes,
            workdir="/",
            umask=0o022,
            environment="",
            env=(),
            own=tuple(sorted((own or {}).items())),
            time_limit_s=None,
            grace_s=5.0,
            manifest=key,
            shares_mib=(share_mib,) * roles,
        )
        self.engine.start(replace(assignment, **changes))

    def look(self) -> None:
        seen = self.engine.observe()
        self.nodes = {node.id: node for node in seen.nodes}
        self.tasks |= {(task.attempt, task.index): task for task in seen.tasks}
        self.emptied |= seen.emptied
        self.runs |= {(run.attempt, run.node): run for run in seen.runs}

    def until(self, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Looks whenever the engine says that something may have changed."""
        until = time.monotonic() + patience_s
        while True:
            self._woken.clear()
            self.look()
            if holds():
                return
            left = until - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not within {patience_s} s: tasks {self.tasks}, runs {self.runs}")
            self._woken.wait(min(left, 1.0))

    def running(self, attempt: AttemptId) -> list[int]:
        return sorted(index for (one, index), task in self.tasks.items() if one == attempt and task.ended_at is None)

    def ends(self, attempt: AttemptId) -> dict[int, tuple[int | None, str]]:
        return {
            index: (task.exit_code, task.cause)
            for (one, index), task in sorted(self.tasks.items())
            if one == attempt and task.ended_at is not None
        }

    def is_finished(self, attempt: AttemptId) -> bool:
        runs = [run for (one, _), run in self.runs.items() if one == attempt]
        return bool(runs) and all(run.is_finished for run in runs)
