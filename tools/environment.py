"""Does this folder have the environment that its lock file names? If not, make it.

Run by the Makefile with any Python 3.11 or newer: `python3 tools/environment.py`. Standard library only.
System packages are installed when running as root on Debian; otherwise the one command to run is named.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".made-from"
MADE_FROM = ("requirements.lock", "pyproject.toml", "sdk/pyproject.toml", "tools/environment.py")

SERVICE_POLICY = Path("/usr/sbin/policy-rc.d")  # asked by Debian before a package's service is started

#: program or file that shows a package is there → the Debian package, and which tests need it
SYSTEM_PACKAGES = {
    "sshfs": ("sshfs", "the network-file-system test"),
    "/usr/lib/openssh/sftp-server": ("openssh-sftp-server", "the network-file-system test"),
    "unshare": ("util-linux", "the reboot test"),
    "setpriv": ("util-linux", "the tests with another user"),
    "curl": ("curl", "the tests of doors"),
    "useradd": ("passwd", "the box tests"),
    "/usr/bin/python3": ("python3", "the box tests' users"),
    "mount": ("mount", "the full-disk test"),
    "mkfs.ext4": ("e2fsprogs", "the read-only-disk test"),
    "mpirun": ("openmpi-bin", "the MPI examples"),
    "lmp": ("lammps", "the MPI examples"),
    "podman": ("podman", "the container tests"),
    "dockerd": ("docker.io", "the container tests, which start an engine of their own"),
    "runc": ("runc", "the container tests"),
    "newuidmap": ("uidmap", "the tests of users' containers"),
    "/usr/share/doc/busybox-static": ("busybox-static", "the container tests"),
    "/usr/libexec/podman/catatonit": ("catatonit", "the container tests"),
    "/usr/lib/podman/netavark": ("netavark", "the container tests"),
    "iptables": ("iptables", "the container tests"),
    "containerd": ("containerd", "the test cluster's real nodes"),
    "/usr/lib/cni/bridge": ("containernetworking-plugins", "the test cluster's real nodes"),
    "ip": ("iproute2", "the test cluster's real nodes"),
    "openssl": ("openssl", "the test cluster's certificates"),
    "/usr/sbin/sshd": ("openssh-server", "the MPI image of the test cluster"),
    "/usr/lib/python3/dist-packages/torch": ("python3-torch", "the PyTorch tests"),
    "slurmctld": ("slurmctld", "the Slurm tests"),
    "slurmd": ("slurmd", "the Slurm tests"),
    "sbatch": ("slurm-client", "the Slurm tests"),
    "munged": ("munge", "the Slurm tests"),
}


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  this file must run where that is not yet known
        print(f"Swell needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}", file=sys.stderr)
        print("try: make PYTHON=python3.12", file=sys.stderr)
        return 1
    if "--system" in sys.argv:
        return install_system_packages()
    return make_environment()


def make_environment() -> int:
    wanted = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return 0
    print(f"making {VENV.name} from requirements.lock (first time: about a minute) ...", flush=True)
    if importlib.util.find_spec("ensurepip") is None and not install(["python3-venv"], "making an environment"):
        return 1
    shutil.rmtree(VENV, ignore_errors=True)
    # A new process: this one decided what ensurepip is before the package may have been installed.
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock")], check=True)
    own = ["--no-deps", "--no-build-isolation", "-e", str(ROOT), "-e", str(ROOT / "sdk")]
    subprocess.run([*pip, *own], check=True)
    STAMP.write_text(wanted)
    print(f"ready: {VENV.name}/bin/swell", flush=True)
    return 0


def fingerprint() -> str:
    parts = [sys.version, str(ROOT)]  # a moved folder needs new scripts
    parts += [(ROOT / name).read_text() for name in MADE_FROM]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def install_system_packages() -> int:
    missing = {package: why for probe, (package, why) in SYSTEM_PACKAGES.items() if not is_there(probe)}
    if not missing:
        return 0
    return 0 if install(sorted(missing), ", ".join(sorted(set(missing.values())))) else 1


def is_there(probe: str) -> bool:
    return Path(probe).exists() if probe.startswith("/") else shutil.which(probe) is not None


def install(packages: list[str], why: str) -> bool:
    """Install Debian packages if we may; otherwise say the one command."""
    names = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"{why} needs: apt-get install -y {names}   (run it as root, then repeat)", file=sys.stderr)
        return False
    print(f"installing {names} ({why}) ...", flush=True)
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)  # type: ignore[call-overload]
    with no_service_starts():
        done = subprocess.run(  # type: ignore[call-overload]
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=False, **quiet
        )
    if done.returncode != 0:
        print(f"apt-get install -y {names} failed; run it by hand to see why", file=sys.stderr)
    return bool(done.returncode == 0)


@contextlib.contextmanager
def no_service_starts(policy: Path = SERVICE_POLICY) -> Iterator[None]:
    """Debian starts the services that a package brings; a docker engine would change the machine's firewall."""
    if policy.exists():  # somebody has decided already
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")  # "action forbidden by policy"
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


if __name__ == "__main__":
    sys.exit(main())
