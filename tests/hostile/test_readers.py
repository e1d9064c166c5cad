"""Everything that root reads, and who could have written it.

- /proc/PID/* of any process: the process wrote its name, environment and words. They are bytes, bounded, only known
  names count, and uid and control group are compared (test_processes.py).
- /proc/self/mountinfo and /proc/PID/cgroup: the kernel's, with names that users gave to mounts and groups. Bytes; only
  whole paths below our own group count (test_kernel.py).
- tasks/ATTEMPT/INDEX/*: keepers and workers wrote it, and on a box nobody else may enter; but the log's bytes, length
  and time are its user's. Facts are matched whole, no time lies in the future, what is no file is no log
  (test_files.py).
- checkpoints/JOB/**: the user's. No file is read. It is removed (test_files.py) and counted (test_sizes.py) without
  recursion, links or mounts, in slices of time.
- .said of a keeper: the user's shell wrote it. 16 bytes, a few known words (worker/asuser.py, tests/box).
- tasks/ATTEMPT/launch.json, .store, .cgroups, .environments/*: the worker's own. What cannot be read counts as absent,
  each run on its own (test_loops.py).
- launches: the server's, with variables and words out of users' manifests. Each on its own; names that are ours are
  dropped (test_loops.py, test_processes.py). The manifests themselves: tests/manifests/test_hostile.py.
- paths that jobs report: resolved by a process of the user's. Exactly two absolute ones, inside the job's folder
  (test_files.py, tests/api/test_paths.py).
- the driver's lists: process ids may be anybody's. Every call is guarded, numbers are bounded (test_loops.py,
  tests/worker/test_nvml.py).

The test below finds every function of these modules that opens, lists or asks for a file. A new one fails it until it
is listed in READERS with the test that feeds it nonsense.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import swell

ROOT = Path(swell.__file__).parent
MODULES = (
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "worker").glob("*.py")),
    "api/checkpoints.py",
    "controller/diskmeter.py",
    "controller/erase.py",
    "doctor/gpus.py",
    "engines/logfolder.py",
    "removal.py",
    "treesize.py",
    "users.py",
)
READS = frozenset(
    {
        "open",
        "fdopen",
        "read_text",
        "read_bytes",
        "read_json",
        "listdir",
        "scandir",
        "iterdir",
        "glob",
        "walk",
        "stat",
        "lstat",
        "readlink",
        "getpwuid",
        "getpwnam",
        "getgrnam",
        "loads",
        "load",
        "read",
        "realpath",
        "run",
        "check_output",
        "communicate",
    }
)
#: module and function → the test that feeds it, or why nobody but us can have written what it reads
READERS = {
    "api/checkpoints.py:_look": "tests/api/test_paths.py",
    "api/checkpoints.py:_output": "test_files.py: parse_found",
    "api/checkpoints.py:find_checkpoint": "a thread's turn; nothing is read",
    "controller/diskmeter.py:DiskMeter._left_by": "whose a folder is that root has made",
    "controller/diskmeter.py:DiskMeter._owned": "test_sizes.py",
    "doctor/gpus.py:ask_driver": "our own process, with a limit of time",
    "doctor/gpus.py:driver_findings": "the kernel: its own namespace",
    "doctor/gpus.py:_commands": "test_processes.py",
    "engines/logfolder.py:LogFolder.offset_at": "test_files.py",
    "engines/logfolder.py:LogFolder.size": "test_files.py",
    "engines/logfolder.py:_opened": "test_files.py",
    "removal.py:Eraser.__init__": "names of ours in a folder of ours",
    "removal.py:_empty": "test_files.py",
    "removal.py:_flatten": "test_files.py",
    "removal.py:open_beneath": "test_files.py",
    "removal.py:remove_tree": "test_files.py",
    "treesize.py:_Level.__init__": "test_sizes.py",
    "treesize.py:entry_sizes": "test_sizes.py",
    "users.py:User.is_in": "the machine's own accounts",
    "users.py:user_by_name": "the machine's own accounts",
    "users.py:user_by_uid": "the machine's own accounts",
    "worker/__main__.py:main": "config.json, root's own",
    "worker/agent.py:Agent.__init__": "the kernel's boot id",
    "worker/agent.py:Agent._add": "the worker's own copy of an environment; absent when it cannot be read",
    "worker/agent.py:Agent._look_around": "config.json, root's own",
    "worker/agent.py:Agent._find_groups": "the worker's own note",
    "worker/agent.py:Agent._held": "test_loops.py",
    "worker/agent.py:Agent._take_up_all": "test_loops.py",
    "worker/agent.py:Agent._write": "written, not read",
    "worker/agent.py:Agent.run": "the worker's own note",
    "worker/asuser.py:_anonymous": "written, not read",
    "worker/asuser.py:_open": "made by us, without following links, where only root makes anything",
    "worker/cgroups.py:Groups.all_of": "names of control groups that only root makes",
    "worker/cgroups.py:_make": "made by us; a file of the kernel's",
    "worker/cgroups.py:_mounted": "test_kernel.py",
    "worker/cgroups.py:_words": "the kernel: names of controllers",
    "worker/cgroups.py:_write": "written, not read",
    "worker/cgroups.py:pids": "the kernel: numbers",
    "worker/contained.py:ContainedTasks._answer": "a runtime of our own, with a limit of time",
    "worker/contained.py:ContainedTasks._note_keeper": "test_files.py: names of a task's folder",
    "worker/devicefilter.py:deny": "a folder of the kernel's, opened and not read",
    "worker/devices.py:_read": "the kernel: numbers",
    "worker/devices.py:memory_mib": "the kernel: numbers",
    "worker/dockerlog.py:_tail": "our own log, its last bytes; a process of its own (tests/worker)",
    "worker/dockerlog.py:main": "the end of docker's log; a process of its own (tests/worker)",
    "worker/examine.py:_command": "test_processes.py",
    "worker/examine.py:_user": "the kernel: a uid",
    "worker/examine.py:main": "the driver (tests/worker/test_nvml.py)",
    "worker/limits.py:_counts": "the kernel: numbers",
    "worker/limits.py:_number": "the kernel: numbers",
    "worker/limits.py:processes_max": "the kernel: a number",
    "worker/logs.py:LogWatch.look": "test_files.py",
    "worker/plain.py:PlainTasks.prepare": "written, not read",
    "worker/processes.py:_pids": "the kernel: numbers",
    "worker/processes.py:_read": "test_processes.py",
    "worker/run.py:Run.take_up": "test_files.py",
    "worker/runtimes.py:_without_waiting": "a log of the user's: not waited for, no link followed",
    "worker/runtimes.py:advice": "/etc/subuid, root's own",
    "worker/runtimes.py:failure_text": "test_files.py",
    "worker/sampler.py:Sampler._run": "the driver (test_loops.py)",
    "worker/sync.py:_Line._ask": "the server; test_loops.py for what it sends",
    "worker/tasks.py:_is_locked": "test_files.py",
    "worker/tasks.py:_made_at": "test_files.py",
    "worker/tasks.py:_names": "test_files.py",
    "worker/tasks.py:spawn": "made by us in a folder that we have just claimed",
    "worker/tensorboard.py:_log": "written, not read",
    "worker/trial.py:ContainerTrial._call": "a trial of the doctor's, with a limit of time",
    "worker/trial.py:ContainerTrial.run": "a trial of the doctor's",
    "worker/trial.py:_archive": "written, not read",
    "worker/trial.py:_config": "config.json, the operator's own",
    "worker/users.py:UserTasks.prepare": "written, not read",
}


def readers() -> Iterator[str]:
    for module in MODULES:
        yield from (f"{module}:{name}" for name in _in(ast.parse((ROOT / module).read_text()), ""))


def _in(node: ast.AST, inside: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{inside}.{child.name}".lstrip(".")
            if isinstance(child, ast.ClassDef):
                yield from _in(child, name)
            elif any(_is_read(call) for call in ast.walk(child)):
                yield name


def _is_read(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    owner = called.value if isinstance(called, ast.Attribute) else None
    return name in READS and not (name == "run" and not (isinstance(owner, ast.Name) and owner.id == "subprocess"))


def test_every_reader_of_what_others_may_have_written_is_listed_with_what_keeps_it_harmless() -> None:
    assert sorted(set(readers())) == sorted(READERS)
