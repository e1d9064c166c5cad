"""From which line of a file does each value of a job come?

Asked for by field of our own notation, in which the job is shown. In a foreign document a value may come from several
places (requests of one pod, an annotation of the object); the first one is named. Fields of a role are `roles[1].cpus`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LAST = re.compile(r"(?:^|\.)((?:swell\.dev/|nvidia\.com/)?[A-Za-z_/-]+)$")
OWN = re.compile(r"\w+|roles\[[0-9]+\]\.\w+")
#: field of our own notation → what foreign documents call it
FOREIGN: dict[str, tuple[str, ...]] = {
    "command": ("command", "args"),
    "gpus": ("nvidia.com/gpu", "request", "gpu"),
    "gpuMemory": ("swell.dev/gpu-memory",),
    "tasks": ("swell.dev/tasks", "minReplicas", "numNodes", "completions", "parallelism", "replicas", "count", "size"),
    "array": ("completions", "parallelism"),
    "roles": ("replicatedJobs", "pytorchReplicaSpecs", "mpiReplicaSpecs", "types", "containers"),
    "cpus": ("cpu", "cpus"),
    "cpuLimit": ("cpuLimitRatio", "cpu", "cpus"),
    "memory": ("memory", "ramRatio"),
    "priority": ("swell.dev/priority", "priority", "priorityClassName"),
    "time": ("swell.dev/time", "activeDeadlineSeconds", "timeout", "deadlineSeconds"),
    "grace": ("terminationGracePeriodSeconds",),
    "epochs": ("swell.dev/epochs",),
    "resize": ("swell.dev/resize",),
    "retries": ("maxRestarts", "backoffLimit", "backoffLimitPerIndex", "restartPolicy"),
    "checkpoints": ("swell.dev/checkpoints",),
    "env": ("env", "environment"),
    "workdir": ("workingDir",),
    "tensorboard": ("tensorboard",),
    "nodeSelector": ("nodeSelector", "extraSelectors", "product"),
    "tolerations": ("tolerations", "extraTolerations"),
    "image": ("image",),
    "shm": ("shmSizeGB",),
}


OF_ALL = ("command", "env")  # fields of roles that a document may say once for all of them


def find_origins(lines: Mapping[str, int], roles: Sequence[str], *, is_native: bool) -> dict[str, int]:
    """Field of our own notation → line. A field that is not here has its default, or is the caller's.

    `roles`: their names.
    """
    if is_native:
        prefix = "spec."
        own = {path.removeprefix(prefix): line for path, line in lines.items() if path.startswith(prefix)}
        return {name: line for name, line in own.items() if OWN.fullmatch(name)}
    parts = [_part(lines, number, name) for number, name in enumerate(roles)]
    beside = {path: line for path, line in lines.items() if not any(path in part for part in parts)}
    shared = {field: line for field, line in _foreign(beside).items() if field in OF_ALL}
    found = _foreign(lines)
    for number, part in enumerate(parts):
        of_role = {**shared, **_foreign(part)} if part else _foreign(lines)
        found |= {f"roles[{number}].{field}": line for field, line in of_role.items()}
        found |= {f"roles[{number}].name": min(part.values())} if part else {}
    return found


def _part(lines: Mapping[str, int], number: int, name: str) -> dict[str, int]:
    """The lines of one role: a field has its name, or it is an entry of a list."""
    named = re.compile(rf"(?:^|.*\.){re.escape(name)}(?:\.|$)", re.IGNORECASE)
    entry = re.compile(rf"spec\.(?:replicatedJobs|containers)\[{number}\]")
    found = {path: line for path, line in lines.items() if named.match(path)}
    return found or {path: line for path, line in lines.items() if entry.match(path)}


def _foreign(lines: Mapping[str, int]) -> dict[str, int]:
    by_name: dict[str, int] = {}
    for path, line in lines.items():
        found = LAST.search(path)
        if found is not None:
            by_name.setdefault(found[1], line)
    origins = {field: [by_name[name] for name in names if name in by_name] for field, names in FOREIGN.items()}
    return {field: found[0] for field, found in origins.items() if found}
