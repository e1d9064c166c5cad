"""What does a container runtime have to be told to run a task?

Pure: values in, words out. The keeper of a container is the one of any task (see `tasks.py`); its command is a
small script around `podman run` or `docker run`. The container is not removed by the runtime itself, because its
exit code would go with it:

    run  →  the code is known  →  exit.<code> is made  →  the container is removed  →  `gone` is made

Who is killed in between leaves a container that still knows its code, and the next worker asks for it by name. With
podman the container writes to the task's log itself and so holds its lock; what is different with docker is in
`dockerkeeper.py`. docs/decisions/0009 says what else was weighed.

Values of variables never stand in the command's words, which everybody on the machine can read: the runtime's client
has them in its environment and is told their names.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from swell.machine.processes import module_argv
from swell.model.job import Container
from swell.model.launch import CAUSE_MEMORY, INSIDE, SOCKET_NAME, is_clients_own
from swell.worker import dockerkeeper
from swell.worker.limits import TaskLimits, shares_of

SDK = f"{INSIDE}/sdk"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  the machine's: a container's own 64 MB are too few for data loaders and NCCL
TOKEN = f"{INSIDE}/token"
HOSTFILE = f"{INSIDE}/hostfile"
RUN = f"{INSIDE}/run"
CODE_WITHIN_S = 10  # a container that has ended tells its code at once, unless its monitor was killed with it

_BEGIN = """\
trap : HUP INT QUIT USR1 USR2 ALRM TERM
"""
_AWAIT = """\
swell_await() {
  _swell_pid=$(RUNTIME container inspect --format '{{.State.Pid}}' "$_swell_name" 2> /dev/null)
  while [ "${_swell_pid:-0}" != 0 ] && [ -d "/proc/$_swell_pid" ]; do sleep 0.3; done
  _swell_code=$(timeout CODE_WITHIN_S RUNTIME wait "$_swell_name" 2> /dev/null)
  case $_swell_code in *[!0-9]*) _swell_code= ;; esac
}
"""
_FINISH = """\
if [ "$_swell_code" = 137 ]; then
  case $(RUNTIME container inspect --format '{{.State.OOMKilled}}' "$_swell_name" 2> /dev/null) in
    true) : > "$_swell_task/cause.OUT_OF_MEMORY" ;;
  esac
fi
if [ -n "$_swell_code" ]; then
  : > "$_swell_task/exit.$_swell_code"
else
  : > "$_swell_task/failed.lost"
fi
RUNTIME REMOVE "$_swell_name" > /dev/null 2>&1 && : > "$_swell_task/gone"
exit "${_swell_code:-125}"
"""
_RUN = """\
RUNTIME run "$@" 5>&-
_swell_code=$?
if [ "$_swell_code" -ge 125 ]; then
  case $(RUNTIME container inspect --format '{{.State.Status}}' "$_swell_name" 2> /dev/null) in
    '' | created | configured | initialized)
      FAILED
      _swell_code=125
      ;;
    *) swell_await ;;
  esac
fi
"""
_WAIT = """\
_swell_task=$1 _swell_name=$5
swell_await
"""
# The same for a container of a box server's user: the keeper, root's, records and calls for the removal, and the script
# tells it what it cannot see (`asuser.py`).
_USER_NAMES = """\
_swell_name=$1
shift
[ "${_swell_step-}" != remove ] || exec RUNTIME REMOVE "$_swell_name"
"""
_USER_FINISH = """\
[ -n "$_swell_code" ] || echo .lost >&5
exit "${_swell_code:-125}"
"""
_ANYBODY = 'set -- --user "$(id -u):$(id -g)" "$@"'
_ROOTLESS = '[ "$(id -u)" = 0 ] || set -- --userns keep-id "$@"'  # one's own files stay one's own


@dataclass(frozen=True, slots=True)
class Runtime:
    """How containers are run on this machine."""

    command: tuple[str, ...]  #: the program, found, and words that come before every other
    options: tuple[str, ...] = ()  #: for every `run`
    has_init: bool = True  #: can it put a process before ours that reaps, and ends at SIGTERM

    @property
    def is_docker(self) -> bool:
        return "docker" in PurePosixPath(self.command[0]).name

    def __str__(self) -> str:
        return shlex.join(self.command)


@dataclass(frozen=True, slots=True)
class Outside:
    """What of ours a container sees beside what the job asks for."""

    workdir: str
    checkpoints: str = ""  #: empty: none
    token: str = ""  #: a file; empty: none
    sockets: str = ""  #: the folder of the socket that jobs report through; empty: none
    packages: tuple[str, ...] = ()  #: the in-job library's folders
    hostfile: str = ""  #: empty: it is alone


def render_run(
    runtime: Runtime,
    container: Container,
    outside: Outside,
    command: tuple[str, ...],
    *,
    name: str,
    label: str,
    umask: int,
    devices: tuple[str, ...],
    variables: dict[str, str],
    limits: TaskLimits | None = None,
) -> tuple[str, ...]:
    """The words after `run`, but for who the user is: that is found out where it runs.

    `limits` None: whoever runs it keeps it to them.
    """
    words = ["--name", name, "--label", f"swell.attempt={label}"]
    words += ["--init"] if runtime.has_init else []
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
    if not runtime.is_docker:
        words += ["--log-driver", "passthrough", "--http-proxy=false", "--umask", f"{umask:04o}"]
    words += ["--workdir", outside.workdir, *_network(container), *_volumes(container, outside)]
    words += ["--shm-size", f"{container.shm_mib}m"] if container.shm_mib else []
    words += _gpus(runtime, tuple(device for device in devices if not is_simulated(device)))
    words += _variables(variables) + _limits(limits)
    return (*words, *runtime.options, container.image, *command)


def render_keeper_command(runtime: Runtime, folder: str, name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """What the keeper runs: the container, its code, its removal."""
    names = "_swell_task=$1 _swell_name=$2\nshift 2\n"
    run = dockerkeeper.RUN if runtime.is_docker else _RUN.replace("FAILED", ': > "$_swell_task/failed.container"')
    script = _BEGIN + _await(runtime) + names + _identity(runtime) + run + _FINISH
    return ("/bin/sh", "-c", _filled(script, runtime), "swell-container", folder, name, *words)


def render_user_command(runtime: Runtime, name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """What a keeper of root's runs as a user, twice: the container, and its removal. Never docker's."""
    run = _RUN.replace("FAILED", "echo .container >&5")
    script = _BEGIN + _AWAIT + _USER_NAMES + _identity(runtime) + run + _USER_FINISH
    return ("/bin/sh", "-c", _filled(script, runtime), "swell-container", name, *words)


def render_user_waiter(runtime: Runtime, name: str) -> tuple[str, ...]:
    """The same for a container that has lost its keeper."""
    script = _BEGIN + _AWAIT + _USER_NAMES + "swell_await\n" + _USER_FINISH
    return ("/bin/sh", "-c", _filled(script, runtime), "swell-container", name)


def render_waiter(runtime: Runtime) -> str:
    """The script of a keeper for a container that has lost its own."""
    return _filled(_BEGIN + _await(runtime) + _WAIT + _FINISH, runtime)


def _await(runtime: Runtime) -> str:
    return dockerkeeper.AWAIT if runtime.is_docker else _AWAIT


def _identity(runtime: Runtime) -> str:
    return f"{_ANYBODY}\n" if runtime.is_docker else f"{_ROOTLESS}\n{_ANYBODY}\n"


def _filled(script: str, runtime: Runtime) -> str:
    remove = shlex.join(remove_words(runtime))
    read_on = shlex.join(module_argv("swell.worker.dockerlog", sees_environment=False))
    script = script.replace("CODE_WITHIN_S", str(CODE_WITHIN_S)).replace("REMOVE", remove).replace("READ_ON", read_on)
    script = script.replace("OUT_OF_MEMORY", CAUSE_MEMORY)
    return script.replace("RUNTIME", str(runtime))


def remove_words(runtime: Runtime) -> tuple[str, ...]:
    return ("rm", "--force") if runtime.is_docker else ("rm", "--force", "--time", "0", "--ignore")


def inside_variables(variables: dict[str, str], container: Container, devices: tuple[str, ...]) -> dict[str, str]:
    """What the task sees: its own and ours, moved to where things are in the container."""
    real = [device for device in devices if not is_simulated(device)]
    own_path = variables.get("PYTHONPATH")
    moved = {"PYTHONPATH": f"{SDK}:{own_path}" if own_path else SDK}
    if "KUBEFLOW_TRAINER_SERVER_TOKEN" in variables:
        moved["KUBEFLOW_TRAINER_SERVER_TOKEN"] = TOKEN
    if "SWELL_HOSTFILE" in variables:
        moved["SWELL_HOSTFILE"] = HOSTFILE
    if "SWELL_SDK" in variables:
        moved["SWELL_SDK"] = SDK
    if needs_socket(variables, container):
        moved["SWELL_JOBS_SOCKET"] = f"{RUN}/{SOCKET_NAME}"
    # Images of NVIDIA say "all"; without a GPU of its own a task must see none.
    return {**variables, **moved, "NVIDIA_VISIBLE_DEVICES": ",".join(real) or "void"}


def needs_socket(variables: dict[str, str], container: Container) -> bool:
    """It is told to report there, or has a network of its own, in which the server has no address."""
    return "SWELL_JOBS_SOCKET" in variables or bool(container.ports)


def client_variables(caller: dict[str, str], variables: dict[str, str]) -> dict[str, str]:
    """What the runtime's client sees: the caller's, and what it hands on."""
    return {**caller, **{name: text for name, text in variables.items() if not is_clients_own(name)}}


def is_simulated(device: str) -> bool:
    return device.startswith("sim-")


def sources(container: Container, outside: Outside) -> tuple[str, ...]:
    """What must exist on the machine before it can start."""
    return tuple(source for source, _, _ in _mounted(container, outside))


def _network(container: Container) -> list[str]:
    if not container.ports:
        return ["--network", "host"]  # gangs meet on loopback, and the server listens there, too
    # With every capability dropped, root in the container could not listen on port 80 either.
    words = ["--sysctl", "net.ipv4.ip_unprivileged_port_start=0"]
    return words + [word for host, inside in container.ports for word in ("--publish", f"{host}:{inside}")]


def _volumes(container: Container, outside: Outside) -> list[str]:
    mounted = _mounted(container, outside)
    return [
        word
        for source, target, is_read_only in mounted
        for word in ("--volume", f"{source}:{target}" + (":ro" if is_read_only else ""))
    ]


def _mounted(container: Container, outside: Outside) -> list[tuple[str, str, bool]]:
    asked = [(mount.source, mount.target, mount.is_read_only) for mount in container.mounts]
    asked += [(volume.folder, volume.target, volume.is_read_only) for volume in container.volumes]
    memory = "" if container.shm_mib else SHARED_MEMORY  # one of its own size is its own
    folders = (outside.workdir, outside.checkpoints, memory)
    own = [(folder, folder, False) for folder in folders if folder not in ("", "/")]
    ours = [(package, f"{SDK}/{PurePosixPath(package).name}", True) for package in outside.packages]
    ours += [(outside.token, TOKEN, True)] if outside.token else []
    ours += [(outside.sockets, RUN, True)] if outside.sockets else []
    ours += [(outside.hostfile, HOSTFILE, True)] if outside.hostfile else []
    # A folder that one of the job's own mounts covers is in the container already, or means another one there.
    covering = [PurePosixPath(target) for _, target, _ in asked]
    own = [one for one in own if not any(PurePosixPath(one[0]).is_relative_to(place) for place in covering)]
    return [*asked, *dict.fromkeys(own), *ours]


def _limits(limits: TaskLimits | None) -> list[str]:
    if limits is None:
        return []
    words = ["--pids-limit", str(limits.processes), "--cpu-shares", str(shares_of(limits.cpus_milli))]
    words += ["--cpus", f"{limits.cpu_limit_milli / 1000:g}"] if limits.cpu_limit_milli else []
    most = f"{limits.memory_mib}m"
    return words + (["--memory", most, "--memory-swap", most] if limits.memory_mib else [])


def _gpus(runtime: Runtime, devices: tuple[str, ...]) -> list[str]:
    if not devices:
        return []
    if runtime.is_docker:
        return ["--gpus", f'"device={",".join(devices)}"']  # docker reads it as CSV; without quotes a comma ends it
    return [word for device in devices for word in ("--device", f"nvidia.com/gpu={device}")]


def _variables(variables: dict[str, str]) -> list[str]:
    return [
        word
        for name, text in sorted(variables.items())
        for word in ("--env", f"{name}={text}" if is_clients_own(name) else name)
    ]
