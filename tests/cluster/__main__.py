"""Who keeps a test cluster that is wanted for longer than one test? `python -m tests.cluster up`, and later `down`.

`up` leaves a keeper behind, a process whose children the cluster's processes are: they go when it goes. A given
KUBECONFIG is used as it is: nothing is started, nothing is stopped.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .binaries import CannotBuild, ensure
from .cluster import Cluster
from .controlplane import NODE_GRACE_S
from .processes import GLANCE_S, Failed
from .recipes import RECIPES, recipe_of

FOLDER = Path(tempfile.gettempdir()) / "swell-cluster"
PEERS = ("coscheduling", "kueue")  # schedulers that benchmarks and experiments measure
DOWN_S = 60.0  # three real nodes take three
NODE_GRACE_S_MAX = 86400


def main() -> int:
    options = parser().parse_args()
    try:
        return int(options.command(options))
    except (Failed, CannotBuild) as failure:
        print(failure, file=sys.stderr)
        return 1


def up(options: argparse.Namespace) -> int:
    """Start a cluster and print its kubeconfig."""
    if given := os.environ.get("KUBECONFIG"):
        print(f"KUBECONFIG is set: nothing was started\n{given}")
        return 0
    if _keeper(options.folder) is None:
        _start_keeper(options)
    print(options.folder / "kubeconfig")
    return 0


def down(options: argparse.Namespace) -> int:
    """Stop the cluster in order and wait until it is gone."""
    if os.environ.get("KUBECONFIG"):
        print("KUBECONFIG is set: nothing was stopped")
        return 0
    keeper = _keeper(options.folder)
    if keeper is None:
        print(f"no cluster runs in {options.folder}")
        return 0
    os.kill(keeper, signal.SIGTERM)
    end = time.monotonic() + DOWN_S
    while _keeper(options.folder) is not None:
        if time.monotonic() > end:
            raise Failed(f"the cluster's keeper, process {keeper}, still runs; see {options.folder / 'keeper.log'}")
        time.sleep(GLANCE_S)
    return 0


def build(options: argparse.Namespace) -> int:
    """Build what is not there yet."""
    named = [recipe_of(name) for name in options.programs]
    tested = [recipe for recipe in RECIPES if recipe.folder.partition("-")[0] not in PEERS]
    ensure(named or (tested if options.tests else RECIPES))
    return 0


def keep(options: argparse.Namespace) -> int:
    """Be the parent of a cluster's processes until somebody says stop."""
    with (options.folder / "keeper").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.write(str(os.getpid()))
        lock.flush()
        enough = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, enough)
        with Cluster(options.folder, **wanted(options)):
            (options.folder / "ready").touch()
            signal.sigwait(enough)
    return 0


def wanted(options: argparse.Namespace) -> dict[str, Any]:
    """Which cluster that is, in the words of `Cluster`."""
    named = {name: [one for one in getattr(options, name).split(",") if one] for name in ("operators", "images")}
    kwok = {"kwok": options.kwok, "kwok_cpus": options.kwok_cpus, "kwok_gpus": options.kwok_gpus}
    return {**kwok, **named, "kubelets": options.kubelets, "gpus": options.gpus, "node_grace_s": options.node_grace}


def words(options: argparse.Namespace) -> list[str]:
    """What `keep` is told, so that it wants the same."""
    found = ["--kwok", str(options.kwok), "--kubelets", str(options.kubelets)]
    found += ["--kwok-cpus", str(options.kwok_cpus), "--kwok-gpus", str(options.kwok_gpus)]
    found += ["--operators", options.operators, "--images", options.images, "--gpus", str(options.gpus)]
    return [*found, "--node-grace", str(options.node_grace)]


def _start_keeper(options: argparse.Namespace) -> None:
    folder: Path = options.folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "keeper").exists():
        raise Failed(f"{folder} holds something that is no cluster; name another with --folder")
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
    folder.mkdir(parents=True)
    with (folder / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster", "keep", "--folder", str(folder), *words(options)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parent.parent.parent,
            start_new_session=True,
        )
    while not (folder / "ready").exists():
        if keeper.poll() is not None:
            raise Failed(f"the cluster did not start:\n{(folder / 'keeper.log').read_text()[-4000:]}")
        time.sleep(GLANCE_S)


def _keeper(folder: Path) -> int | None:
    """The keeper's process id while it holds its lock."""
    try:
        with (folder / "keeper").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0)
    except FileNotFoundError:
        pass
    return None


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= NODE_GRACE_S_MAX:
        raise argparse.ArgumentTypeError(f"must be whole seconds from 1 to {NODE_GRACE_S_MAX}, but is {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.splitlines()[0])
    commands = found.add_subparsers(required=True)
    for command in (up, down, keep):
        options = commands.add_parser(command.__name__, help=command.__doc__)
        options.set_defaults(command=command)
        options.add_argument("--folder", type=Path, default=FOLDER, help="where logs, keys and data are (%(default)s)")
        if command is not down:
            options.add_argument("--kwok", type=int, default=0, help="how many simulated nodes")
            options.add_argument("--kwok-cpus", type=int, default=64, help="CPUs of each (%(default)s)")
            options.add_argument("--kwok-gpus", type=int, default=8, help="GPUs of each (%(default)s)")
            options.add_argument("--kubelets", type=int, default=0, help="how many real nodes, up to 3; needs root")
            options.add_argument("--gpus", type=int, default=0, help="how many GPUs each real node declares")
            options.add_argument("--operators", default="", help="of jobset,training,coscheduling")
            options.add_argument("--images", default="", help="of python,torch,swell: for real nodes")
            options.add_argument(
                "--node-grace",
                type=_seconds,
                default=NODE_GRACE_S,
                metavar="SECONDS",
                help="after which a node that says nothing counts as lost; many simulated ones are slow (%(default)s)",
            )
    options = commands.add_parser("build", help=build.__doc__)
    options.set_defaults(command=build)
    options.add_argument("programs", nargs="*", help="all that there are if none is named")
    options.add_argument("--tests", action="store_true", help="only what tests need, not whom benchmarks race")
    return found


if __name__ == "__main__":
    sys.exit(main())
