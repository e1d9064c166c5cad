"""Which folders are believed, where others may have made folders and links before us?"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from swell.client.find import find_server
from swell.errors import Denied
from swell.machine.private_folder import refuse_if_others_may_write
from swell.machine.state_folder import StateFolder
from swell.machine.worker_folder import WorkerFolder
from swell.model.job import AttemptId
from swell.pools.folder import PoolFolder
from swell.worker.job_files import JobFolders

NOBODY = 65534


@pytest.fixture
def common(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    made = tmp_path / "common"
    made.mkdir()
    made.chmod(0o1777)
    return made


def theirs(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def their_folder(common: Path) -> Path:
    place = common / "state"
    place.mkdir(mode=0o700)
    theirs(place)
    return place


def a_folder_in_theirs(common: Path) -> Path:
    place = their_folder(common) / "deep" / "er"
    place.mkdir(parents=True)
    return place


def their_link_to_ours(common: Path) -> Path:
    """Hole: what it leads to is ours and private, so the check was passed, and the link led elsewhere later."""
    target, place = common.parent / "ours", common / "state"
    target.mkdir(mode=0o700)
    place.symlink_to(target)
    theirs(place)
    return place


def their_link_to_nothing(common: Path) -> Path:
    place = common / "state"
    place.symlink_to(common.parent / "gone")
    theirs(place)
    return place


def a_link_of_ours_through_their_link(common: Path) -> Path:
    their_link_to_ours(common)
    place = common.parent / "link"
    place.symlink_to("common/../common/state/deep")
    return place


def a_new_folder_below_their_link(common: Path) -> Path:
    return their_link_to_ours(common) / "new"


def a_folder_that_everybody_may_write(common: Path) -> Path:
    place = common / "state"
    place.mkdir()
    place.chmod(0o777)
    return place


def a_folder_that_a_group_may_write(common: Path) -> Path:
    place = common / "state"
    place.mkdir()
    os.chown(place, -1, NOBODY)
    place.chmod(0o770)
    return place


PREPARED = [
    their_folder,
    a_folder_in_theirs,
    their_link_to_ours,
    their_link_to_nothing,
    a_link_of_ours_through_their_link,
    a_new_folder_below_their_link,
    a_folder_that_everybody_may_write,
    a_folder_that_a_group_may_write,
]


def server(folder: Path) -> None:
    StateFolder(folder).prepare()


def worker(folder: Path) -> None:
    WorkerFolder(folder).prepare()


def pool(folder: Path) -> None:
    PoolFolder(folder).prepare()


def client(folder: Path) -> None:
    find_server(str(folder))


@pytest.mark.parametrize("use", [server, worker, pool, client])
@pytest.mark.parametrize("prepare", PREPARED)
def test_what_another_user_may_have_prepared_is_refused_before_anything_is_written(
    common: Path, prepare: Callable[[Path], Path], use: Callable[[Path], None]
) -> None:
    place = prepare(common)
    before = sorted(common.parent.rglob("*"))
    with pytest.raises(Denied, match="could run programs as you"):
        use(place)
    assert sorted(common.parent.rglob("*")) == before


@pytest.mark.parametrize("use", [server, worker, pool, client])
def test_what_only_we_or_root_can_have_made_is_taken(common: Path, use: Callable[[Path], None]) -> None:
    target, link = common / "ours", common / "link"
    target.mkdir(mode=0o755)
    link.symlink_to("../common/ours")
    for place in (target, link, common / "new" / "deep"):
        use(place)


def test_what_has_come_between_the_first_look_and_its_making_is_refused(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, make = common / "state", Path.mkdir

    def too_late(path: Path, *args: object, **kwargs: object) -> None:
        make(path, exist_ok=True)
        theirs(path)

    monkeypatch.setattr(Path, "mkdir", too_late)
    with pytest.raises(Denied, match="could run programs as you"):
        server(place)
    assert list(place.iterdir()) == []


def test_the_private_group_of_its_owner_may_write(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = a_folder_that_a_group_may_write(common)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_gid=NOBODY, pw_name="ann"))
    for name, members, is_taken in (
        ("ann", [], True),
        ("ann", ["ann"], True),
        ("ann", ["bob"], False),
        ("lab", [], False),
    ):
        group = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        if is_taken:
            refuse_if_others_may_write(place)
        else:
            with pytest.raises(Denied, match="chmod go-w"):
                refuse_if_others_may_write(place)


def test_a_volume_of_a_pod_may_be_open_to_all_of_the_pod(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = a_folder_that_everybody_may_write(common)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(Denied, match="chmod go-w"):
        refuse_if_others_may_write(place)  # no mount, so somebody in the pod has made it
    monkeypatch.setattr(Path, "is_mount", lambda path: path == place)
    refuse_if_others_may_write(place)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(Denied, match="chmod go-w"):
        refuse_if_others_may_write(place)


def test_a_circle_of_links_ends(common: Path) -> None:
    (common / "a").symlink_to("b")
    (common / "b").symlink_to("a")
    refuse_if_others_may_write(common / "a")


@pytest.mark.parametrize("part", [".", "tasks"])
def test_the_files_of_a_job_are_believed_only_where_nobody_else_can_have_made_them(common: Path, part: str) -> None:
    """A complete `files` folder is taken as it is. What vouches for it is that every folder above it is private."""
    folder = WorkerFolder(common / "worker")
    (folder.tasks / "7.1" / "files").mkdir(parents=True)
    assert JobFolders.home(SimpleNamespace(_tasks=folder.tasks), AttemptId(7, 1)).is_dir()  # type: ignore[arg-type]
    above = folder.root / part
    theirs(above)
    with pytest.raises(Denied, match="could run programs as you"):
        folder.prepare()
    os.chown(above, os.geteuid(), os.getegid())
    above.chmod(0o777)
    with pytest.raises(Denied, match="could run programs as you"):
        folder.prepare()
    above.chmod(0o700)
    folder.prepare()
