"""How does a task become the user who submitted it?

The keeper stays root: it records the exit code where the user can write nothing, cannot be signalled by the user, and
holds the lock that says the task is alive on a descriptor the user's processes never see. Nothing of the user's
reaches it: a variable like LD_PRELOAD would make root run the user's code. So the environment travels in an anonymous
file that only the shell reads which already is the user (not as arguments either: those are for all to see).

    sh (keeper, root, clean environment) → sh (enters its control group) → setpriv → sh (the user: environment, umask,
    folder) → the command

docs/decisions/0008-tasks-become-the-user.md says why it is done so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from pathlib import Path

from swell.machine.keyring import new_keyring
from swell.machine.users import User, open_without_waiting
from swell.worker.tasks import DEFAULT_SIGNALS

# Descriptors: 3 the environment, 4 the lock, 5 what the user's shell has to say to the keeper. What comes there is the
# user's: a little of it is kept, and read after a code that is ours, and only words that are known count.
_KEEPER = """\
trap : HUP INT QUIT USR1 USR2 ALRM TERM
_swell_task=$1 _swell_lane=$2 _swell_note=
shift 2
BEGIN"$@" 4>&-
_swell_code=$?
[ "$_swell_code" != 125 ] || _swell_note=$(head -c 16 /proc/self/fd/5 | tr -d '\\0')
case $_swell_note in .workdir | .container | .lost | .fence) ;; *) _swell_note= ;; esac
: > "$_swell_task/exit.$_swell_code$_swell_note"
END"""
_BEGUN = ': > "$_swell_task/begun.$$.$_swell_lane" || exit 125\n'
_EXIT = "exit $_swell_code\n"
# The code is recorded before the container goes, which knows it: the script under us is run a second time.
_REMOVE = '_swell_step=remove "$@" > /dev/null 2>&1 4>&- 5>&1 && : > "$_swell_task/gone"\n'
KEEPER = _KEEPER.replace("BEGIN", _BEGUN).replace("END", _EXIT)
CONTAINER_KEEPER = _KEEPER.replace("BEGIN", _BEGUN).replace("END", _REMOVE + _EXIT)
WAITING_KEEPER = _KEEPER.replace("BEGIN", "").replace("END", _REMOVE + _EXIT)  # for one that has begun long ago
# What protects the service from the kernel's hunger for memory does not protect what it runs for users.
ENTER = """\
{ read -r _swell_adj || [ -n "$_swell_adj" ]; } 2> /dev/null < /proc/self/oom_score_adj
case $_swell_adj in -*) echo 0 > /proc/self/oom_score_adj ;; esac
while [ "$1" != -- ]; do
  echo 0 > "$1/cgroup.procs" || { echo .fence >&5; exit 125; }
  shift
done
shift
exec "$@"
"""
INNER = """\
. /proc/self/fd/3
exec 3<&-
umask "$1"
[ -z "${SWELL_CHECKPOINTS-}" ] || [ -d "$SWELL_CHECKPOINTS" ] || mkdir -p -- "$SWELL_CHECKPOINTS" 5>&-
cd -- "$2" || { echo .workdir >&5; exit 125; }
SILENCE
shift 2
exec "$@"
"""
KEEPER_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MARKS = ("SWELL_STORE", "SWELL_ATTEMPT", "SWELL_TASK_INDEX")  # by which a keeper is known again
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # no shell passes on a variable of another name
OF_THE_SHELL = frozenset({"OPTIND", "PPID", "IFS", "LINENO", "UID", "EUID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})
SAID_BYTES = 16  # more than any word that counts; what the keeper reads
HIGH = 10  # above the descriptors that the keeper gets


def spawn(
    folder: str,
    lane: int,
    command: tuple[str, ...],
    workdir: str,
    umask: int,
    env: dict[str, str],
    user: User,
    groups: tuple[Path, ...],
    *,
    keeper: str = KEEPER,
) -> int:
    """As `tasks.spawn`, with the command as that user, in these control groups."""
    with contextlib.ExitStack() as stack:
        lock = _open(f"{folder}/lock", os.O_RDWR, stack)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        log = _open(f"{folder}/log", os.O_WRONLY | os.O_APPEND, stack)
        os.fchown(log, user.uid, user.gid)  # so that the task can open /dev/stdout
        variables = _anonymous(environment_script(env), stack)
        said = _few_words(stack)
        # A container's script has something to say; any other command has not.
        script = INNER.replace("SILENCE", "exec 5>&-" if keeper is KEEPER else "")
        inner = ["/bin/sh", "-c", script, "swell-task", f"{umask:04o}", workdir, *command]
        become = [*enter_argv(groups), *become_argv(user), *inner]
        stack.enter_context(new_keyring())
        return os.posix_spawn(
            "/bin/sh",
            ["swell-keeper", "-c", keeper, "swell-keeper", folder, str(lane), *become],
            {"PATH": KEEPER_PATH, **{name: env[name] for name in MARKS if name in env}},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, variables, 3),
                (os.POSIX_SPAWN_DUP2, lock, 4),
                (os.POSIX_SPAWN_DUP2, said, 5),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=DEFAULT_SIGNALS,
        )


def enter_argv(groups: tuple[Path, ...]) -> list[str]:
    """Words before a command that put it into control groups; what cannot enter them does not run."""
    return ["/bin/sh", "-c", ENTER, "swell-enter", *map(str, groups), "--"]


def send(
    command: tuple[str, ...],
    env: dict[str, str],
    user: User,
    groups: tuple[Path, ...],
    *,
    output: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """A command that is no task, as that user; what it says is not heard, unless a descriptor for it is given."""
    script = INNER.replace("/proc/self/fd/3", "/proc/self/fd/0").replace("exec 3<&-", "exec < /dev/null")
    inner = ["/bin/sh", "-c", script.replace("SILENCE", ""), "swell-sent", "0077", "/", *command]
    with contextlib.ExitStack() as stack, new_keyring():
        return subprocess.Popen(
            [*enter_argv(groups), *become_argv(user), *inner],
            env={"PATH": KEEPER_PATH},
            stdin=_anonymous(environment_script(env), stack),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def become_argv(user: User) -> list[str]:
    """Words before a command that make it the user's, with all their groups and none of our rights."""
    ids = [f"--reuid={user.uid}", f"--regid={user.gid}", "--init-groups"]
    return ["setpriv", *ids, "--inh-caps=-all", "--"]


def environment_script(env: dict[str, str]) -> bytes:
    """What a shell reads to have these variables."""
    passed = {name: text for name, text in env.items() if NAME.fullmatch(name) and name not in OF_THE_SHELL}
    lines = [f"export {name}='" + text.replace("'", "'\\''") + "'\n" for name, text in passed.items()]
    return os.fsencode("".join(lines))


def _open(path: str, flags: int, stack: contextlib.ExitStack) -> int:
    made = open_without_waiting(path, flags | os.O_CREAT)
    os.set_blocking(made, True)  # what inherits it writes as to any file
    return _raised(made, stack)


def _anonymous(data: bytes, stack: contextlib.ExitStack) -> int:
    made = os.memfd_create("swell-environment", os.MFD_CLOEXEC)
    with open(made, "wb", closefd=False) as file:
        file.write(data)
    return _raised(made, stack)


def _few_words(stack: contextlib.ExitStack) -> int:
    """Of a fixed size, and on no disk: a file of root's that users' programs can write would be under no quota."""
    made = os.memfd_create("swell-said", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(made, SAID_BYTES)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return _raised(made, stack)


def _raised(descriptor: int, stack: contextlib.ExitStack) -> int:
    """Out of the way of those that the keeper gets: they are put in place one after the other."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(descriptor)
    stack.callback(os.close, high)
    return high
