"""In which folder is the library that jobs import, and nothing else?

A job's own Python may be another than ours, so our site-packages must not end up on its PYTHONPATH: unless the two
packages lie alone in their folder (a checkout), they are copied into one. For jobs of a box server's users they are
always copied: we may be installed where only root can go, such as below /root.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

log = logging.getLogger(__name__)

PACKAGES = ("kubernetesdlprofile", "swell_sdk")


def library_folder(for_users: Path | None = None) -> str | None:
    """`for_users`: a folder of ours that all users of the machine may enter. None: swell-sdk is not installed here."""
    sources = [_source(name) for name in PACKAGES]
    found = [source for source in sources if source is not None]
    if len(found) < len(PACKAGES):
        return None
    if for_users is None and found[0].parent == found[1].parent and _is_alone(found[0].parent):
        return str(found[0].parent)
    return str(_copied(found, for_users or _own_cache()))


def library_for_tasks(for_users: Path | None) -> str:
    """Empty: it is not installed, or its copy cannot be written; tasks can do without."""
    try:
        return library_folder(for_users) or ""
    except OSError as error:
        log.warning("tasks are not told where the library for jobs is: %s", error)
        return ""


def installed_packages() -> tuple[str, ...]:
    """The folder of each package, wherever it is installed; nothing of it is imported."""
    return tuple(str(source) for source in map(_source, PACKAGES) if source is not None)


def packages_in(folder: str | None) -> tuple[str, ...]:
    return () if folder is None else tuple(str(Path(folder, name)) for name in PACKAGES)


def _source(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _is_alone(folder: Path) -> bool:
    return {path.name for path in folder.iterdir() if path.suffix != ".egg-info"} <= {*PACKAGES, "__pycache__"}


def _own_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swell"


def _copied(sources: list[Path], into: Path) -> Path:
    """Named by what is in it, so that a new version is another folder and nobody reads half of one."""
    files = {file.relative_to(one.parent): file.read_bytes() for one in sources for file in sorted(one.rglob("*.py"))}
    folder = into / f"library-{hashlib.sha256(b''.join(files.values())).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    into.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=into, prefix=".library-"))
    try:
        _write(files, draft)
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft)
        if not folder.is_dir():  # otherwise somebody else was first
            raise
    return folder


def _write(files: dict[Path, bytes], draft: Path) -> None:
    """Readable for everybody, whatever the umask and however the originals are protected."""
    for name, content in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_bytes(content)
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
