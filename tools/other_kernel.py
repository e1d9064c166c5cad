"""How do tests run where the kernel is another one than this machine's, booted with options of its own?

In a virtual machine of QEMU that runs Debian's kernel and sees this machine's files: read-only, with a layer in memory
above them for what is written. Nothing is installed but QEMU; the kernel is unpacked below .venv and never installed.
QEMU emulates the CPU: slower than /dev/kvm, but the same everywhere; in a virtual machine KVM may be there and hang.
"""

from __future__ import annotations

import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.environment import install, is_there  # noqa: E402

FOLDER = ROOT / ".venv/other-kernel"
QEMU = "qemu-system-x86_64"
PACKAGES = {QEMU: "qemu-system-x86", "/usr/share/doc/busybox-static": "busybox-static"}
KERNEL = "linux-image-amd64"  # depends on the package of the newest kernel
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")  # and those that they need
MEMORY_MIB = 2048
TIME_LIMIT_S = 1800  # ten times what the tests of limits take

#: The first process: this machine's files become the root folder.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
for module in {modules}; do insmod /modules/$module.ko || echo "no $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 files /files &&
mount -t tmpfs -o size=75% tmpfs /layer && mkdir /layer/above /layer/work &&
mount -t overlay -o lowerdir=/files,upperdir=/layer/above,workdir=/layer/work overlay /root || poweroff -f
cp /inside /root/.inside
exec switch_root /root /bin/sh /.inside
"""

#: Then, with the programs of this machine; the root group of version 2 hands every controller down.
INSIDE = """
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
uname -r
cat /proc/self/cgroup /sys/fs/cgroup/cgroup.controllers
cd {folder}
export HOME=/root PATH={path} PYTHONDONTWRITEBYTECODE=1
{command}
echo $? > /dev/ttyS1
echo o > /proc/sysrq-trigger
while :; do :; done
"""


def prepare_machine() -> str:
    """What is missing, or nothing."""
    if os.uname().machine != "x86_64":
        return f"this is a machine of kind {os.uname().machine}; the virtual machine is made for x86_64 only"
    missing = sorted(package for probe, package in PACKAGES.items() if not is_there(probe))
    if missing and not install(missing, "a virtual machine"):
        return f"no {', '.join(missing)} here"
    return "" if _kernels() else _unpack()


def run_in_machine(command: list[str], options: str) -> int:
    """The exit code of a command in this folder, as root, under a kernel with these options; its output is shown."""
    boot = FOLDER / "boot.cpio"
    boot.write_bytes(_first_files(command))
    vm = [QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB), "-no-reboot"]
    vm += ["-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "none"]
    vm += ["-virtfs", "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap"]
    vm += ["-kernel", str(_kernels()[-1]), "-initrd", str(boot)]
    vm += ["-append", f"console=ttyS0 loglevel=3 panic=-1 {options}"]
    code = FOLDER / "code"  # what the second serial line said
    code.unlink(missing_ok=True)
    vm += ["-serial", f"file:{code}"]
    subprocess.run(["timeout", str(TIME_LIMIT_S), *vm], stdin=subprocess.DEVNULL, check=False)
    told = code.read_text().strip() if code.exists() else ""
    return int(told) if told else 1


def _kernels() -> list[Path]:
    return sorted(FOLDER.glob("kernel/boot/vmlinuz-*"))


def _unpack() -> str:
    """The newest kernel of Debian, its modules too; the same answer as `prepare_machine`."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    depends = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=False).stdout
    newest = re.search(r"Depends: (linux-image-\S+)", depends)
    if newest is None:
        return f"apt-cache knows no {KERNEL}: apt-get update, and a list of Debian's packages, are needed"
    subprocess.run(["apt-get", "download", "-qq", newest[1]], cwd=FOLDER, check=True)
    for package in FOLDER.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(FOLDER / "kernel")], check=True)
        package.unlink()
    return "" if _kernels() else f"{newest[1]} has no kernel in it"


def _first_files(command: list[str]) -> bytes:
    """An archive as the kernel reads it: a shell, the modules, and what is done with them."""
    files = FOLDER / "first"
    shutil.rmtree(files, ignore_errors=True)
    for name in ("bin", "proc", "files", "layer", "root", "modules"):
        (files / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, files / "bin/busybox")
    modules = _with_needed(MODULES)
    for name, content in modules.items():
        (files / f"modules/{name}.ko").write_bytes(content)
    (files / "init").write_text(INIT.format(modules=" ".join(modules)))
    (files / "init").chmod(0o755)
    words = {"folder": shlex.quote(str(ROOT)), "path": shlex.quote(os.environ["PATH"]), "command": shlex.join(command)}
    (files / "inside").write_text(INSIDE.format(**words))
    names = "\n".join(str(path.relative_to(files)) for path in [files, *sorted(files.rglob("*"))])
    archive = [busybox, "cpio", "-o", "-H", "newc"]
    return subprocess.run(archive, cwd=files, input=names.encode(), capture_output=True, check=True).stdout


def _with_needed(names: tuple[str, ...]) -> dict[str, bytes]:
    """Modules in the order in which they are loaded; what is not there is in the kernel itself."""
    there = {path.name.partition(".")[0].replace("-", "_"): path for path in FOLDER.glob("kernel/**/*.ko*")}
    found: dict[str, bytes] = {}
    for name in names:
        if name in there and name not in found:
            content = there[name].read_bytes()
            content = lzma.decompress(content) if there[name].suffix == ".xz" else content
            needs = re.search(rb"\0depends=([^\0]*)\0", content)
            needed = needs[1].decode().replace("-", "_").split(",") if needs else []
            found |= {**_with_needed(tuple(one for one in needed if one)), name: content}
    return found


if __name__ == "__main__":  # python tools/other_kernel.py OPTIONS COMMAND...
    sys.exit(prepare_machine() or run_in_machine(sys.argv[2:], sys.argv[1]))
