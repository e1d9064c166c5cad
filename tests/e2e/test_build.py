"""`swell submit --build` with real podman: the image of an AIchor manifest is built, and its job runs in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .containers import ContainerServer, podman

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerServer]:
    with ContainerServer(tmp_path_factory.mktemp("build"), podman()) as made:
        yield made


def manifest(image: str, **spec: Any) -> str:
    types = {"worker": {"count": 2, "resources": {"cpus": 0.2, "ramRatio": 1, "shmSizeGB": 0.1}}}
    builder = {"image": image, "buildArgs": {"SAYS": "built"}}
    given = {"operator": "jobset", "image": image, "command": "echo $SAYS $JOB_INDEX", "types": types, **spec}
    return yaml.safe_dump(
        {"kind": "AIchorManifest", "apiVersion": "0.2.3", "name": "built", "builder": builder, "spec": given}
    )


@pytest.fixture
def image(box: ContainerServer, tmp_path: Path) -> Iterator[str]:
    name = f"localhost/swell-built:{tmp_path.name.lower()}"
    yield name
    box.runtime.call("rmi", "--force", name)


def test_the_image_of_a_builder_section_is_built_and_run(box: ContainerServer, tmp_path: Path, image: str) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {box.runtime.image}\nARG SAYS\nENV SAYS=$SAYS\n")
    (tmp_path / "manifest.yaml").write_text(manifest(image))
    done = box.swell("submit", "--build", "--wait", "manifest.yaml", cwd=tmp_path, timeout_s=120)
    assert done.code == 0, done
    job = done.stdout.split()[0]
    assert [box.swell("logs", "--rank", rank, job).stdout for rank in "01"] == ["built 0\n", "built 1\n"]


@pytest.mark.parametrize(
    ("dockerfile", "changes", "said"),
    [
        ("FROM\n", {}, "podman could not build the image (exit code"),
        ("FROM scratch\n", {"operator": "kuberay"}, "spec.operator is kuberay, which needs a Ray cluster"),
    ],
)
def test_what_cannot_be_built_or_run_submits_nothing(
    box: ContainerServer, tmp_path: Path, image: str, dockerfile: str, changes: dict[str, Any], said: str
) -> None:
    """What is refused is not even built."""
    before = box.swell("ps", "-a", "-o", "json").stdout
    (tmp_path / "Dockerfile").write_text(dockerfile)
    (tmp_path / "manifest.yaml").write_text(manifest(image, **changes))
    done = box.swell("submit", "--build", "manifest.yaml", cwd=tmp_path, timeout_s=120)
    assert (done.code in (1, 2), done.stdout, said in done.stderr) == (True, "", True), done
    assert box.swell("ps", "-a", "-o", "json").stdout == before
    assert ("building:" in done.stderr) is (not changes)
