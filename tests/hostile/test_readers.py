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

The test below finds every function of ours that opens, lists or asks for a file, in all modules but those in EXEMPT. A
new one fails it until it is listed in READERS with the test that feeds it nonsense.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import swell

ROOT = Path(swell.__file__).parent
#: modules, or folders of them, in which root never meets what a user has left; everything else is looked at
EXEMPT = {
    "cli/": "a command: it reads what whoever typed it has named, or their own folder, and nobody else waits for it",
    "client/": "the same; what they import: test_folders.py",
    "experiments/": "a command, and what it has written itself: the same",
    "engines/kubernetes/": "in a cluster no user has a file where the server runs",
    "model/": "values; nothing is read",
    "planner/": "values (the import contracts forbid it files)",
    "throughput/": "values (the import contracts forbid it files)",
}
MODULES = tuple(
    name
    for name in sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
    if not name.startswith(tuple(EXEMPT))
)
#: where also what only makes sense of something that was read counts; elsewhere the same words are the store's
CLOSEST = (
    "worker/",
    "api/checkpoints.py",
    "controller/diskmeter.py",
    "controller/retention.py",
    "doctor/gpus.py",
    "engines/logfolder.py",
    "machine/",
    "notifications/programs.py",
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
        "realpath",
        "run",
        "check_output",
        "open_without_waiting",
    }
)
MAKES_SENSE = frozenset({"loads", "load", "read", "communicate"})
#: of files/, which no box uses
STORED = "the server's own folder, private to its owner; lists are checked again (tests/files/test_folders.py)"
PACKED = "tests/files/test_folders.py: whoever types it, or the worker for a job of its own user; no link is followed"
UNPACKED = "tests/files/test_folders.py: through no link; every chunk is compared with its SHA-256"
CACHED = "tests/files/test_shared_cache.py: the cache of workers of one user; keys are ours"
#: module and function → the test that feeds it, or why nobody but us can have written what it reads
READERS = {
    "api/audit.py:Audit._told": "root's own note of how far it is",
    "api/audit.py:FileSink.write": "a file that the operator has named; written, not read",
    "api/checkpoints.py:_look": "tests/api/test_paths.py",
    "api/checkpoints.py:_output": "test_files.py: parse_found",
    "api/checkpoints.py:find_checkpoint": "a thread's turn; nothing is read",
    "api/doors/manage.py:doors_router": "the store's `open`; no file",
    "config.py:read_config": "config.json, root's own",
    "controller/diskmeter.py:DiskMeter._left_by": "whose a folder is that root has made",
    "controller/diskmeter.py:DiskMeter._owned": "test_sizes.py",
    "controller/pools.py:_read": "root's own folder; tests/api/test_pools.py has half of one",
    "controller/jobsecrets.py:_read_retired": "root's own folder",
    "doctor/__init__.py:_store": "root's own folder",
    "doctor/containers.py:_is_cluster": "config.json, root's own",
    "doctor/containers.py:_try_out": "our own process, with a limit of time (test_folders.py)",
    "doctor/gpus.py:_commands": "test_processes.py",
    "doctor/gpus.py:ask_driver": "our own process, with a limit of time",
    "doctor/gpus.py:driver_findings": "the kernel: its own namespace",
    "doctor/machine.py:ask_limits": "our own process, with a limit of time (test_folders.py)",
    "doctor/service.py:_folder": "root's own folder",
    "doctor/service.py:_worker": "root's own folder",
    "engines/logfolder.py:LogFolder.offset_at": "test_files.py",
    "engines/logfolder.py:LogFolder.size": "test_files.py",
    "engines/logfolder.py:_opened": "test_files.py",
    "engines/workers/backends.py:BackendNotes._write": "root's own note",
    "engines/workers/backends.py:_read": "root's own note; each line is checked",
    "engines/workers/engine.py:WorkersEngine.open": "opens no file",
    "engines/workers/engine.py:keeper_pid": "test_files.py",
    "engines/workers/received_logs.py:ReceivedLogs.write": "test_files.py: opened without waiting; bounded",
    "engines/workers/registry.py:_read": "root's own folder",
    "files/chunk_store.py:ChunkStore._drop_forgotten": STORED,
    "files/chunk_store.py:ChunkStore._jobs_with_outputs": STORED,
    "files/chunk_store.py:ChunkStore.get": STORED,
    "files/chunk_store.py:ChunkStore.list_bytes": STORED,
    "files/chunk_store.py:ChunkStore.outputs": STORED,
    "files/chunk_store.py:ChunkStore.size": STORED,
    "files/chunk_store.py:ChunkStore.sweep": STORED,
    "files/chunk_store.py:_is_older": STORED,
    "files/chunk_store.py:_size_of": STORED,
    "files/chunk_store.py:_write": STORED,
    "files/pack.py:_entry": PACKED,
    "files/pack.py:_rule_texts": PACKED,
    "files/pack.py:_walk": PACKED,
    "files/pack.py:read_parts": PACKED,
    "files/pack.py:with_input": PACKED,
    "files/shared_cache.py:SharedCache._download": CACHED,
    "files/shared_cache.py:SharedCache._drop_old": CACHED,
    "files/shared_cache.py:SharedCache._entries": CACHED,
    "files/shared_cache.py:SharedCache._fs_now": CACHED,
    "files/shared_cache.py:SharedCache._take_away": CACHED,
    "files/shared_cache.py:SharedCache.sweep": CACHED,
    "files/shared_cache.py:_text": CACHED,
    "files/shared_cache.py:SharedCache._opened": CACHED,
    "files/unpack.py:_exists": UNPACKED,
    "files/unpack.py:_open_folder": UNPACKED,
    "files/unpack.py:_write_file": UNPACKED,
    "files/unpack.py:unpack": UNPACKED,
    "machine/library.py:_copied": "the library as it is installed",
    "machine/library.py:_is_alone": "the library as it is installed",
    "machine/boot_clock.py:boot_id": "the kernel's",
    "machine/certificate.py:_openssl": "openssl, with words of ours",
    "machine/certificate.py:_version": "asked, not opened",
    "machine/certificate.py:_read": "a file that the operator has named",
    "machine/earlier_holders.py:_lock": "root's own folder, and the kernel: a number",
    "machine/earlier_holders.py:earlier_holders": "root's own folder",
    "machine/listening.py:first_port_of_users": "the kernel: a number",
    "machine/log_limit.py:LogWatch.look": "test_files.py",
    "machine/log_limit.py:drop_beginning": "test_files.py",
    "machine/processes.py:spawn_detached": "written, not read",
    "machine/removal.py:Eraser.__init__": "names of ours in a folder of ours",
    "machine/removal.py:_empty": "test_files.py",
    "machine/removal.py:_flatten": "test_files.py",
    "machine/removal.py:open_beneath": "test_files.py",
    "machine/removal.py:remove_tree": "test_files.py",
    "machine/private_folder.py:_is_private_group": "the machine's own accounts",
    "machine/private_folder.py:_parts": "modes, owners and links; tests/machine/test_private_folder.py",
    "machine/private_folder.py:refuse_if_others_may_write": "tests/machine/test_private_folder.py",
    "machine/sockets.py:_is_socket": "asked, not opened",
    "machine/sockets.py:short_name": "a folder that is opened, not read",
    "machine/state_folder.py:StateFolder._is_closed_to_us": "an owner; tests/machine/test_private_folder.py",
    "machine/state_folder.py:StateFolder.keep_secret": "root's own folder",
    "machine/state_folder.py:StateFolder.lock": "root's own folder",
    "machine/state_folder.py:StateFolder.lock_holder": "root's own folder",
    "machine/state_folder.py:StateFolder.prepare": "root's own folder",
    "machine/state_folder.py:StateFolder.read_json": "root's own folder",
    "machine/state_folder.py:StateFolder.secret": "root's own folder",
    "machine/state_folder.py:StateFolder.serving": "root's own folder",
    "machine/state_folder.py:exposure": "a mode; tests/machine/test_state_folder.py",
    "machine/state_folder.py:file_system": "tests/machine/test_state_folder.py",
    "machine/state_folder.py:write_private": "written, not read",
    "machine/tree_size.py:_Level.__init__": "test_sizes.py",
    "machine/tree_size.py:entry_sizes": "test_sizes.py",
    "machine/users.py:User.is_in": "the machine's own accounts",
    "machine/users.py:user_by_name": "the machine's own accounts",
    "machine/users.py:user_by_uid": "the machine's own accounts",
    "machine/users.py:open_without_waiting": "test_files.py",
    "machine/worker_folder.py:WorkerFolder.read_json": "the worker's own folder",
    "notifications/programs.py:_Output.read": "tests/box/test_notices.py: bounded, and never waited for",
    "notifications/programs.py:_find_groups": "root's own note",
    "notifications/programs.py:_watch": "tests/box/test_notices.py: bounded, and never waited for",
    "server/main.py:Parts.open": "begins; no file",
    "server/main.py:_remember": "root's own folder",
    "server/main.py:_serve": "begins; no file",
    "server/kubernetes_backend.py:KubernetesBackend._begin": "begins; no file",
    "pools/azure_batch/options.py:_read_key": "named by whoever started the pool",
    "pools/folder.py:PoolFolder.held": "the pool's own folder, mode 0700; a pool is no part of a server",
    "pools/folder.py:PoolFolder.holder": "the same; digits count, nothing else",
    "pools/folder.py:PoolFolder.key": "the same",
    "pools/folder.py:PoolFolder.worker_token": "the same; what cannot be read is asked for anew",
    "pools/kubernetes/access.py:_authority": "named by whoever started the pool",
    "pools/ledger.py:read_ledger": "the same folder; what cannot be read is filled from the backend's listing",
    "pools/slurm/backend.py:SlurmBackend._run": "no file: Slurm's commands; tests/pools/test_slurm.py",
    "pools/slurm/backend.py:SlurmBackend.logs": "names of files in the pool's folder for logs",
    "pools/slurm/backend.py:_pieces": "a log, shown to whoever typed `swell pool logs` as it is",
    "server/backends.py:WorkersBackend.open": "begins; no file",
    "server/listeners.py:_is_since_boot": "root's own folder",
    "server/listeners.py:_last_port": "root's own folder",
    "server/listeners.py:open_listeners": "root's own folder",
    "server/standing_by.py:Standby.__init__": "begins; no file",
    "server/supervisor.py:own_worker": "root's own folder",
    "sim/replay.py:read_recorded": "a recorded plan, as who types it; bounded",
    "sim/traces/lines.py:read_lines": "a trace, as who types it; bounded",
    "sim/traces/lines.py:read_text": "a trace, as who types it; bounded",
    "sim/traces/plain.py:_read_yaml": "a trace, as who types it; bounded",
    "worker/__main__.py:_look_at_token": "the worker's own token file",
    "worker/job_files.py:JobFolders._fetch_folder": "the server's answer: its SHA-256 is known; a list is checked",
    "worker/job_files.py:JobFolders._fetch_input": "the worker's cache; into a folder that no link leads out of",
    "worker/job_files.py:_missing": "the server's answer",
    "worker/sync.py:WorkerConnection._exchange": "the server's answer",
    "worker/sync.py:_words": "the server's answer; what cannot be read is shown, cut short",
    "worker/agent.py:Agent._add": "the worker's own copy of an environment; absent when it cannot be read",
    "worker/agent.py:Agent.end_tasks": "the worker's own note",
    "worker/agent.py:Agent.run": "the worker's own note",
    "worker/allocation.py:_text": "the kernel: limits of our own control group",
    "worker/asuser.py:_anonymous": "written, not read",
    "worker/asuser.py:_open": "made by us, without following links, where only root makes anything",
    "worker/backend.py:_pod": "the kubelet's, in the worker's own pod",
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
    "worker/downloads.py:download": "an address of a job's: bounded, and compared with its SHA-256, if it has one",
    "worker/environment.py:read_ca": "named by whoever started the worker",
    "worker/examine.py:_command": "test_processes.py",
    "worker/examine.py:_user": "the kernel: a uid",
    "worker/examine.py:main": "the driver (tests/worker/test_nvml.py)",
    "worker/guard.py:has_living_tasks": "names of folders that only the worker makes",
    "worker/held_launches.py:HeldLaunches._parse": "test_loops.py",
    "worker/held_launches.py:HeldLaunches.all": "test_loops.py",
    "worker/held_launches.py:HeldLaunches.write": "written, not read",
    "worker/last_heard.py:HeardNote.noted": "the worker's own note (tests/worker/test_sync.py)",
    "worker/limits.py:_counts": "the kernel: numbers",
    "worker/limits.py:_number": "the kernel: numbers",
    "worker/limits.py:processes_max": "the kernel: a number",
    "worker/log_sender.py:LogSender._read": "test_files.py: opened without waiting, bounded",
    "worker/machine.py:find_groups": "the worker's own note",
    "worker/plain.py:PlainTasks.prepare": "written, not read",
    "worker/processes.py:_pids": "the kernel: numbers",
    "worker/processes.py:_threads": "the kernel: numbers",
    "worker/processes.py:_read": "test_processes.py",
    "worker/run.py:Run.take_up": "test_files.py",
    "worker/runtimes.py:advice": "/etc/subuid, root's own",
    "worker/runtimes.py:failure_text": "test_files.py",
    "worker/sampler.py:Sampler._run": "the driver (test_loops.py)",
    "worker/spot_notice.py:SpotNotice._request": "the machine's metadata service; bounded, with a limit of time",
    "worker/spot_notice.py:parse_notice": "the same; what cannot be read is no notice",
    "worker/sync.py:ServerLink._headers": "the worker's own token file",
    "worker/sync.py:WorkerConnection._ask": "the server; test_loops.py for what it sends",
    "worker/tasks.py:_is_locked": "test_files.py",
    "worker/tasks.py:_made_at": "test_files.py",
    "worker/tasks.py:_names": "test_files.py",
    "worker/tasks.py:spawn": "made by us in a folder that we have just claimed",
    "worker/tensorboard.py:_last_line": "the end of a user's log, opened without waiting, bounded",
    "worker/tensorboard.py:_log": "written, not read",
    "worker/trial.py:ContainerTrial._call": "a trial of the doctor's, with a limit of time",
    "worker/trial.py:ContainerTrial.run": "a trial of the doctor's",
    "worker/trial.py:_archive": "written, not read",
    "worker/trial.py:_config": "config.json, the operator's own",
    "worker/users.py:UserTasks._hand": "written, not read",
}


def readers() -> Iterator[str]:
    for module in MODULES:
        words = READS | MAKES_SENSE if module.startswith(CLOSEST) else READS
        yield from (f"{module}:{name}" for name in _in(ast.parse((ROOT / module).read_text()), "", words))


def _in(node: ast.AST, inside: str, words: frozenset[str]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{inside}.{child.name}".lstrip(".")
            if isinstance(child, ast.ClassDef):
                yield from _in(child, name, words)
            elif any(_is_read(call, words) for call in ast.walk(child)):
                yield name


def _is_read(node: ast.AST, words: frozenset[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    owner = called.value if isinstance(called, ast.Attribute) else None
    return name in words and not (name == "run" and not (isinstance(owner, ast.Name) and owner.id == "subprocess"))


def test_every_reader_of_what_others_may_have_written_is_listed_with_what_keeps_it_harmless() -> None:
    assert sorted(set(readers())) == sorted(READERS)
