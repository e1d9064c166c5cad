"""Which tasks is a job in our own notation: one kind of them, or several roles?

`roles` is a list, in the order of ranks; each entry has a name and what a job with one kind of tasks says in `spec`
itself. All tasks of all roles start together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests import gpus
from swell.manifests.command import read_command, read_env
from swell.manifests.fields import inside, quantity, read_name, refuse_unknown, take_list, take_mapping
from swell.model.job import Array, Dimension, Role
from swell.model.quantity import COUNT_MAX, parse_array, parse_cpus, parse_memory, parse_range
from swell.model.resources import Resources

OF_A_TASK = ("command", "tasks", "gpus", "gpuMemory", "exclusive", "cpus", "cpuLimit", "memory")
ROLE = ("name", *OF_A_TASK, "env")
NOT_WITH_ROLES = (*OF_A_TASK, "array", "launcher")
ROLES_MAX = 64  # a job has two or three; each may be a large text

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of a job, and how wide it may be."""

    roles: tuple[Role, ...]
    dimension: Dimension
    width_min: int
    width_max: int
    array: Array | None = None

    @property
    def is_one(self) -> bool:
        return (
            self.array is None
            and sum(role.count for role in self.roles) == 1
            and (self.dimension is Dimension.GPUS or self.width_max == 1)
        )

    @property
    def resources(self) -> Resources:
        """Of the tasks with GPUs, if there are any."""
        return next((role.resources for role in self.roles if role.resources.gpus), self.roles[0].resources)


@dataclass(frozen=True, slots=True)
class RoleEntry:
    """One role before its width is decided."""

    where: str
    role: Role
    tasks: Span
    gpus: Span


def read_tasks(spec: dict[str, Any]) -> Tasks:
    if spec.get("roles") is not None:
        return _several(spec)
    array = None if spec.get("array") is None else Array(*quantity(parse_array, spec["array"], "array"))
    one = _entry(spec, "", "worker")
    dimension, low, high = _width(one.tasks, one.gpus, array)
    return Tasks((one.role,), dimension, low, high, array)


def _entry(spec: dict[str, Any], where: str, name: str) -> RoleEntry:
    command = read_command(spec.get("command"))
    tasks = (1, 1) if spec.get("tasks") is None else quantity(parse_range, spec["tasks"], "tasks")
    wholes, gpu_memory_mib = gpus.read_gpus(spec, tasks)
    cpus = 1000 if spec.get("cpus") is None else quantity(parse_cpus, spec["cpus"], "cpus")
    memory = 0 if spec.get("memory") is None else quantity(parse_memory, spec["memory"], "memory")
    resources = Resources(cpus, memory, wholes[0], gpu_memory_mib)
    role = Role(name, command, resources, tasks[0], cpu_limit_milli=_cpu_limit(spec.get("cpuLimit"), cpus))
    return RoleEntry(where, role, tasks, wholes)


def _cpu_limit(value: object, cpus: int) -> int:
    if value is None:
        return 0
    limit = quantity(parse_cpus, value, "cpuLimit")
    if limit < max(cpus, 1):
        raise Rejected(f"cpuLimit: {value} is below cpus, {cpus / 1000:g}, which each task is given; raise it")
    return limit


# -- several roles -------------------------------------------------------------------------------------------


def _several(spec: dict[str, Any]) -> Tasks:
    for field in NOT_WITH_ROLES:
        if spec.get(field) is not None:
            advice = "a job with roles has none" if field in ("array", "launcher") else "write it in each role"
            raise Rejected(f"{field} beside roles: {advice}; leave it out of spec")
    given = take_list(spec["roles"], "roles")
    if not 1 <= len(given) <= ROLES_MAX:
        raise Rejected(f"roles has {len(given)} entries; a job has 1 to {ROLES_MAX}")
    entries = [_role_entry(one, f"roles[{number}]") for number, one in enumerate(given)]
    names = [entry.role.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise Rejected(f"roles has the name {name!r} twice; every role has its own")
    total = sum(entry.tasks[1] for entry in entries)
    if total > COUNT_MAX:
        raise Rejected(f"roles have {total} tasks together; a job has at most {COUNT_MAX}")
    return Tasks(tuple(entry.role for entry in entries), *_shared_width(entries))


def _role_entry(value: object, where: str) -> RoleEntry:
    given = take_mapping(value, where)
    refuse_unknown(given, ROLE, where)
    with inside(f"{where}."):
        name = read_name(given.get("name"))
        entry = _entry(given, where, name)
        env = read_env(given.get("env"))
    if entry.tasks[0] < 1:
        raise Rejected(f"{where}.tasks: {entry.tasks[0]} is too few; a role has at least 1 task")
    if entry.gpus[0] == 0 < entry.gpus[1]:
        raise Rejected(f"{where}.gpus 0..{entry.gpus[1]}: a range must start at 1 or more; write 1..{entry.gpus[1]}")
    return replace(entry, role=replace(entry.role, env=env))


def _shared_width(entries: list[RoleEntry]) -> tuple[Dimension, int, int]:
    """Elastic in one dimension: the tasks of the first role, or the GPUs of all tasks that have some, in step."""
    first, *others = entries
    holders = [entry for entry in entries if entry.gpus[1]]
    ranged = next((entry for entry in holders if entry.gpus[0] < entry.gpus[1]), None)
    wide = next((entry for entry in others if entry.tasks[0] < entry.tasks[1]), None)
    if wide is not None:
        raise Rejected(
            f"{wide.where}.tasks is {range_text(wide.tasks)}: only the first role may have a range of tasks; move it "
            "up, or give one number"
        )
    if ranged is None:
        if len(entries) == 1 and first.tasks == (1, 1) and holders:
            return Dimension.GPUS, *first.gpus
        return Dimension.TASKS, *first.tasks
    if first.tasks[0] < first.tasks[1]:
        raise Rejected(
            f"{first.where}.tasks is {range_text(first.tasks)} and {ranged.where}.gpus {range_text(ranged.gpus)}: a "
            "job is elastic in one dimension; give a fixed number of GPUs, or of tasks"
        )
    other = next((entry for entry in holders if entry.gpus != ranged.gpus), None)
    if other is not None:
        raise Rejected(
            f"{ranged.where}.gpus is {range_text(ranged.gpus)} and {other.where}.gpus {range_text(other.gpus)}: the "
            "tasks of a job are resized together; give them the same range"
        )
    return Dimension.GPUS, *ranged.gpus


# -- one kind of tasks ---------------------------------------------------------------------------------------


def _width(tasks: Span, wholes: Span, array: Array | None) -> tuple[Dimension, int, int]:
    if tasks[0] < 1:
        raise Rejected(f"tasks: {tasks[0]} is too few; a job has at least 1 task")
    if array is not None:
        return _array_width(tasks, wholes, array)
    if wholes[0] != wholes[1] and tasks != (1, 1):
        raise Rejected(
            f"gpus {wholes[0]}..{wholes[1]} with tasks {range_text(tasks)}: a job is elastic in one dimension; "
            "give a fixed number of GPUs, or one task"
        )
    if wholes[0] == 0 and wholes[1] > 0:
        raise Rejected(f"gpus 0..{wholes[1]}: a range must start at 1 or more; write 1..{wholes[1]}")
    if tasks == (1, 1) and wholes[1] > 0:
        return Dimension.GPUS, *wholes
    return Dimension.TASKS, *tasks


def _array_width(tasks: Span, wholes: Span, array: Array) -> tuple[Dimension, int, int]:
    if tasks != (1, 1):
        raise Rejected(f"array with tasks {range_text(tasks)}: each task of an array is one process; leave out tasks")
    if wholes[0] != wholes[1]:
        raise Rejected(
            f"array with gpus {range_text(wholes)}: the tasks of an array are alike; give one number of GPUs"
        )
    return Dimension.TASKS, 1, array.at_once


def range_text(span: Span) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}..{span[1]}"
