"""A real Slurm on this machine: munged, slurmctld and two slurmd, as root, in a folder of its own.

with SlurmCluster(tmp_path) as slurm:
    slurm.run("sinfo")

`has_accounting`: with slurmdbd on a MariaDB of its own beside them; its queue forgets a job after two seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from server import PATIENCE_S, ended

CONFIG = """\
ClusterName=swelltest
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
{accounting}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
JobRequeue=1
KillWait=5
InactiveLimit=0
MinJobAge={remembered_s}
SlurmctldTimeout=30
SlurmdTimeout=5
MessageTimeout=10
SlurmdParameters=config_overrides
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={port_one} CPUs=4 RealMemory=4000 State=UNKNOWN
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={port_two} CPUs=4 RealMemory=4000 State=UNKNOWN
NodeName=never NodeHostname={host} NodeAddr=127.0.0.1 Port={port_never} CPUs=4 RealMemory=4000 State=DOWN
PartitionName=main Nodes=one,two Default=YES MaxTime=60 State=UP
PartitionName=closed Nodes=never MaxTime=60 State=UP
"""


WITHOUT_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port_dbd}
AccountingStoragePass={munge}"""
DBD_CONFIG = """\
AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port_dbd}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port_sql}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
"""
GRANTS = """\
CREATE USER 'slurm'@'%' IDENTIFIED BY 'slurm';
CREATE DATABASE slurm_acct;
GRANT ALL ON slurm_acct.* TO 'slurm'@'%';
"""


class SlurmCluster:
    """`env`: with it Slurm's commands talk to this cluster."""

    def __init__(self, folder: Path, *, has_accounting: bool = False) -> None:
        self.folder = folder
        self._has_accounting = has_accounting
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SlurmCluster:
        self._write_config()
        try:
            self._start("munged", self._munged())
            self.until(lambda: (self.folder / "munge.socket").exists(), "munged listens")
            if self._has_accounting:
                self._start_accounting()
            self._start("slurmctld", ["slurmctld", "-D", "-i"])
            for node in ("one", "two"):
                self.start_node(node)
            self.until(lambda: self.nodes("one") == self.nodes("two") == "idle", "both nodes are idle")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError, AssertionError):  # it may not have got that far
            self.run("scancel", "--user=root")
        for name in list(reversed(self._processes)):
            self._kill(name)

    def _start_accounting(self) -> None:
        """A database, the daemon in front of it, and this cluster in it."""
        data, name = self.folder / "sql", "--defaults-file=/dev/null"
        self.run("mariadb-install-db", name, f"--datadir={data}", "--user=root", "--skip-test-db")
        options = [f"--datadir={data}", "--user=root", "--bind-address=127.0.0.1", f"--port={self._ports['port_sql']}"]
        options += [f"--socket={self.folder}/sql.socket", f"--pid-file={self.folder}/sql.pid"]
        self._start("mariadbd", ["mariadbd", name, *options])
        client = ["mariadb", name, f"--socket={self.folder}/sql.socket", "--user=root"]
        self.until(lambda: self.run(*client, "--execute=SELECT 1") != "", "MariaDB answers")
        self.run(*client, f"--execute={GRANTS}")
        self._start("slurmdbd", ["slurmdbd", "-D"])
        self.until(lambda: self.run("sacctmgr", "-n", "show", "cluster") == "", "slurmdbd answers")
        self.run("sacctmgr", "-i", "add", "cluster", "swelltest")

    def start_node(self, node: str) -> None:
        self._start(node, ["slurmd", "-D", "-N", node])

    def kill_node(self, node: str) -> None:
        """As a power cut: slurmd, the steps it has started and all that runs in them."""
        steps = self._steps_of(node)
        self._kill(node)
        for pid in [*steps, *(child for step in steps for child in _descendants(step))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **self.env}, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def nodes(self, node: str) -> str:
        return self.run("sinfo", "--noheader", f"--nodes={node}", "--format=%t").strip()

    def jobs(self) -> dict[str, str]:
        """Live ones: id → state."""
        lines = self.run("squeue", "--noheader", "--format=%A %T").split("\n")
        return dict(line.split() for line in lines if line)  # type: ignore[misc]

    def submitted(self) -> int:
        """How many jobs there have ever been."""
        return int(self.run("scontrol", "show", "config").partition("NEXT_JOB_ID")[2].split()[1]) - 1

    def _write_config(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir(exist_ok=True)
        names = ("port", "port_one", "port_two", "port_never", "port_dbd", "port_sql")
        self._ports = dict(zip(names, _free_ports(len(names)), strict=True))
        host = socket.gethostname().partition(".")[0]
        known = {"folder": self.folder, "munge": self.folder / "munge.socket", "host": host, **self._ports}
        accounting = WITH_ACCOUNTING.format(**known) if self._has_accounting else WITHOUT_ACCOUNTING
        text = CONFIG.format(accounting=accounting, remembered_s=2 if self._has_accounting else 30, **known)
        (self.folder / "slurm.conf").write_text(text)
        if self._has_accounting:
            dbd = self.folder / "slurmdbd.conf"
            dbd.write_text(DBD_CONFIG.format(**known))
            dbd.chmod(0o600)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)

    def _munged(self) -> list[str]:
        names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munge.seed"}
        options = [f"--{option}={self.folder / name}" for option, name in names.items()]
        return ["munged", "--foreground", "--force", f"--log-file={self.folder / 'munged.log'}", *options]

    def _start(self, name: str, words: Sequence[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                words, env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/"
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is None:
            with ended(process.pid):
                process.kill()
            process.wait()

    def _steps_of(self, node: str) -> list[int]:
        """slurmstepd of batch jobs there: their spool folder tells."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes()
                if (
                    words.startswith(b"slurmstepd")
                    and str(self.folder).encode() in (path.parent / "environ").read_bytes()
                ):
                    found.append(int(path.parent.name))
        return [pid for pid in found if self._node_of(pid) == node]

    def _node_of(self, step: int) -> str:
        for child in _descendants(step):
            with contextlib.suppress(OSError):
                for word in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    if word.startswith(b"SLURMD_NODENAME="):
                        return word.partition(b"=")[2].decode()
        return ""

    def until(self, is_true: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not _quietly(is_true):
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} has ended: {(self.folder / f'{name}.out').read_text()[-2000:]}"
            assert time.monotonic() < until, f"never: {what}; {self._logs()}"
            time.sleep(0.1)

    def _logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in sorted(self.folder.glob("*.log")))


def _quietly(is_true: Callable[[], bool]) -> bool:
    try:
        return is_true()
    except AssertionError:
        return False


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, children) for one in (child, *_descendants(child))]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
