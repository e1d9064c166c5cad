"""What do containers on real nodes consist of? Files of this machine: no image can be pulled here.

`busybox` is a static busybox with a link for each of its commands, and what sandboxes run. `python` is whatever
Debian's python3 and a shell need, `torch` what its python3-torch needs: the files of the packages and of all that they
depend on. `lammps` is Debian's LAMMPS with Open MPI and an ssh server, through which mpirun reaches other pods; it is
set up as the MPI operator's images are: a Worker needs no command.
`swell` is `python` with this source tree and the packages it needs, as deploy/Containerfile would install them.
Pods name `swell.test/NAME:1` with `imagePullPolicy: Never`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from .binaries import cache
from .processes import Failed, run

BUSYBOX = Path("/bin/busybox")
DPKG = Path("/var/lib/dpkg")
PACKAGES = {
    "python": ("python3", "dash"),
    "torch": ("python3-torch", "dash"),
    "lammps": ("lammps", "openmpi-bin", "openssh-server", "openssh-client", "coreutils", "dash"),
    "swell": ("python3", "libstdc++6", "coreutils", "dash"),
}
SOURCE = Path(__file__).parent.parent.parent / "src" / "swell"
DAY_S = 86400
PLACE = "opt/swell"  # where Python finds it in the image
COMMAND = "#!/usr/bin/python3\nimport sys\n\nfrom swell.cli import main\n\nsys.exit(main())\n"
CONFIGS: dict[str, dict[str, object]] = {
    "lammps": {"Env": ["PATH=/usr/bin:/bin", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]},
    "swell": {"Env": ["PATH=/usr/bin:/bin", f"PYTHONPATH=/{PLACE}", "PYTHONUNBUFFERED=1"], "User": "10001:0"},
}
USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
#: instead of those of packages: every pod has another host key than the one seen before under its name
FILES: dict[str, dict[str, str]] = {
    "lammps": {
        "etc/passwd": f"{USERS}sshd:x:100:65534::/run/sshd:/bin/false\n",
        "etc/ssh/ssh_config": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
        "etc/ssh/sshd_config": "StrictModes no\nUsePAM no\nPidFile none\nHostKey /etc/ssh/host_key\n",
        "run/sshd/.empty": "",
    }
}
UNNEEDED = re.compile(r"^/usr/(share/(doc|man|locale|lintian|info)|include)/|\.a$")
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}  # as Debian merged them


def name_of(image: str) -> str:
    return f"swell.test/{image}:1"


def image(name: str) -> Path:
    """An archive that `ctr images import` takes; made once for each state of the packages."""
    folder = cache().parent / "images"
    made = folder / f"{name}-{_fingerprint(name)}.tar"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{name}-{os.getpid()}"
        _write_archive(name, beside)
        beside.rename(made)
        if name == "swell":
            _forget_older(made)
    return made


def _forget_older(made: Path) -> None:
    """Every change of the source is a new image; those of another day are nobody's any more."""
    for old in made.parent.glob("swell-*.tar"):
        if made.stat().st_mtime - old.stat().st_mtime > DAY_S:
            old.unlink(missing_ok=True)


def _fingerprint(name: str) -> str:
    """What the image is made of: a package's new version is a new image."""
    if name == "busybox":
        return hashlib.sha256(BUSYBOX.read_bytes()).hexdigest()[:12]
    versions = run("dpkg-query", "-W", "-f", "${Package}=${Version}\n", *sorted(_closure(PACKAGES[name])))
    made_of = hashlib.sha256(f"{versions}{CONFIGS.get(name)}{FILES.get(name)}".encode())
    for file in sorted(_source()) if name == "swell" else ():
        made_of.update(f"{file}\0".encode() + file.read_bytes())
    return made_of.hexdigest()[:12]


def _write_archive(name: str, target: Path) -> None:
    layer = target.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        _add_base(tar)
        _add_busybox(tar) if name == "busybox" else _add_packages(tar, PACKAGES[name])
        if name == "swell":
            _add_swell(tar)
        _add_files(tar, FILES.get(name, {}))
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin:/bin"],
            "Cmd": ["/bin/sleep", "infinity"],
            "WorkingDir": "/",
            **CONFIGS.get(name, {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name_of(name)], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as tar:
        tar.add(layer, "layer.tar")
        _add_text(tar, "config.json", json.dumps(config))
        _add_text(tar, "manifest.json", json.dumps(manifest))
    layer.unlink()


def _add_base(tar: tarfile.TarFile) -> None:
    for folder, mode in {"tmp": 0o1777, "etc": 0o755, "root": 0o700, "usr": 0o755, "usr/bin": 0o755}.items():
        entry = tarfile.TarInfo(folder)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        tar.addfile(entry)
    for link, to in LINKS.items():
        _add_link(tar, link, to)
    _add_text(tar, "etc/passwd", USERS)
    _add_text(tar, "etc/group", "root:x:0:\nnogroup:x:65534:\n")


def _add_files(tar: tarfile.TarFile, files: Mapping[str, str]) -> None:
    """Later than a package's own."""
    for path, text in files.items():
        _add_text(tar, path, text)
    if "etc/ssh/sshd_config" in files:
        _add_text(tar, "etc/ssh/host_key", _host_key(), mode=0o600)


def _host_key() -> str:
    with tempfile.TemporaryDirectory() as folder:
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key")
        return Path(folder, "key").read_text()


def _add_busybox(tar: tarfile.TarFile) -> None:
    if not Path("/usr/share/doc/busybox-static").exists():  # the other package's busybox needs libraries
        raise Failed("the busybox image needs a static /bin/busybox: apt-get install -y busybox-static")
    tar.add(BUSYBOX, "usr/bin/busybox")
    for command in run(BUSYBOX, "--list").split():
        if command != "busybox":
            _add_link(tar, f"usr/bin/{command}", "busybox")


def _add_swell(tar: tarfile.TarFile) -> None:
    for distribution in _distributions("swell"):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and path.suffix != ".pyc" and path.is_file():
                tar.add(path, f"{PLACE}/{file}")
    for path in _source():
        tar.add(path, f"{PLACE}/swell/{path.relative_to(SOURCE)}")
    _add_link(tar, "usr/bin/python", "python3")
    _add_text(tar, "usr/bin/swell", COMMAND, mode=0o755)


def _source() -> list[Path]:
    return [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def _distributions(name: str) -> list[importlib.metadata.Distribution]:
    """All that one needs to run, itself left out where it is installed from its source tree."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [name]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or Python
        needs = [text for text in found[name].requires or () if "extra ==" not in text]
        waiting += [re.match(r"[A-Za-z0-9._-]+", text).group() for text in needs]  # type: ignore[union-attr]
    del found["swell"]
    return list(found.values())


def _add_packages(tar: tarfile.TarFile, packages: Iterable[str]) -> None:
    packages = _closure(packages)
    paths = {path for package in packages for path in _files(package) if not UNNEEDED.search(path)}
    for path in sorted(paths | _alternatives(paths)):
        if Path(path).is_symlink() or not Path(path).is_dir():
            merged = path if path.startswith(("/usr", "/etc")) else f"/usr{path}"
            if Path(path).exists():
                tar.add(path, merged.lstrip("/"), recursive=False)


def _closure(packages: Iterable[str]) -> set[str]:
    """Everything installed that these packages depend on, and they themselves."""
    facts = run("dpkg-query", "-W", "-f", "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n").splitlines()
    needs: dict[str, list[str]] = {}
    providers: dict[str, str] = {}
    for package, provides, depends in (line.split("\t") for line in facts):
        needs[package] = re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", depends)
        providers.update(dict.fromkeys(re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]+)", provides), package))
    found: set[str] = set()
    waiting = list(packages)
    while waiting:
        package = waiting.pop()
        package = package if package in needs else providers.get(package, "")
        if package and package not in found:
            found.add(package)
            waiting += needs[package]
    if missing := [package for package in packages if package not in found]:
        raise Failed(f"an image is made of Debian's {', '.join(missing)}: apt-get install -y {' '.join(missing)}")
    return found


def _files(package: str) -> list[str]:
    lists = [DPKG / "info" / f"{package}.list", DPKG / "info" / f"{package}:amd64.list"]
    return [path for file in lists if file.exists() for path in file.read_text().splitlines() if path != "/."]


def _alternatives(paths: set[str]) -> set[str]:
    """Links that no package owns: /usr/lib/…/libblas.so.3 → /etc/alternatives/… → a file of a package."""
    found: set[str] = set()
    for file in (DPKG / "alternatives").iterdir():
        for link in [
            line for line in file.read_text().splitlines() if line.startswith("/") and Path(line).is_symlink()
        ]:
            if os.path.realpath(link) in paths and str(Path(link).readlink()).startswith("/etc/alternatives/"):
                found |= {link, str(Path(link).readlink())}
    return found


def _add_link(tar: tarfile.TarFile, name: str, to: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, to
    tar.addfile(entry)


def _add_text(tar: tarfile.TarFile, name: str, text: str, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    tar.addfile(entry, io.BytesIO(text.encode()))
