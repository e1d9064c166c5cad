"""Could another user have prepared this folder, or exchange it later?

What is found in a folder of ours is believed: tokens, settings, programs that are run. In a folder such as /tmp,
anybody makes folders and links of any name before we do. Standard library only, and light: every command line imports
it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from swell.errors import Denied

LINKS_MAX = 40  # as the kernel
ROOT = 0


def refuse_if_others_may_write(folder: Path) -> None:
    """Whoever may write there could have their programs run as the owner of the server or the worker."""
    refuse_others_parts(folder)
    try:
        found = folder.stat()  # a link is one that we or root made: its parts were looked at
    except OSError:
        return  # it is not there, or we may not even look: whoever makes or opens it says so
    if not stat.S_ISDIR(found.st_mode):
        return  # whoever makes the folder says that a file is there
    if found.st_uid not in (os.geteuid(), ROOT):
        raise Denied(f"{folder} belongs to another user, who could run programs as you; name another folder")
    if _others_may_write(found) and not _is_volume_of_pod(folder, found):
        raise Denied(
            f"other users may write to {folder}, so they could run programs as you; "
            f"type: chmod go-w {folder}, or name another folder"
        )


def refuse_others_parts(path: Path) -> None:
    """Each part that is there, also those that links lead through: what lies in a folder like /tmp must be ours."""
    for part, found, is_open in _parts(path):
        if is_open and found.st_uid not in (os.geteuid(), ROOT):
            what = "link" if stat.S_ISLNK(found.st_mode) else "folder"
            raise Denied(
                f"the {what} {part} belongs to another user, who could run programs as you: anybody may make one in "
                f"{part.parent}; name another folder"
            )


def _parts(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Each existing part, and whether anybody may make one of that name."""
    waiting, current, links = [*reversed(path.absolute().parts[1:])], Path("/"), 0
    while waiting and links <= LINKS_MAX:
        name = waiting.pop()
        if name == "..":
            current = current.parent
            continue
        entry = current / name
        try:
            found, is_open = entry.lstat(), bool(current.stat().st_mode & stat.S_IWOTH)
        except OSError:
            return  # it is not there, or nobody may look: whoever uses the path is told
        yield entry, found, is_open
        current = entry
        if stat.S_ISLNK(found.st_mode):
            target = entry.readlink()
            links += 1
            current = Path("/") if target.is_absolute() else entry.parent
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private_group(found)


def _is_private_group(found: os.stat_result) -> bool:
    """Many systems give each user a group of their own, and let it write whatever they make. Is it the owner's?"""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (found.st_gid, group.gr_name) and not {*group.gr_mem} - {user.pw_name}


def _is_volume_of_pod(folder: Path, found: os.stat_result) -> bool:
    """Kubernetes gives a volume to the group of its pod, or to everybody in it: nobody else is in there."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and found.st_uid == ROOT and folder.is_mount()
