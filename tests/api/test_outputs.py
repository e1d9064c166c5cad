"""A worker may send back what the job names as outputs, and nothing else, whoever has its token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.service import WORKER, Answer, Service
from swell.files.chunk_store import ChunkStore
from swell.files.listing import EntryKind, FolderEntry, FolderListing, cut, digest_of


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, files=ChunkStore(tmp_path / "sent"))
    yield made
    made.close()


def send(service: Service, job: int, *paths: str) -> Answer:
    files = service.services.files
    assert files is not None
    one = files.put(b"1")
    listing = FolderListing(tuple(FolderEntry(path, EntryKind.FILE, size=1, chunks=(one,)) for path in paths))
    parts = [files.put(part) for part in cut(listing.to_bytes())]
    body = {"attempt": f"{job}.1", "node": "box", "chunks": parts}
    answer = service.ask("POST", "/workers/outputs", body, token=WORKER)
    if answer.status != 200:  # nor is its list kept
        assert not files.has_folder(digest_of(listing.to_bytes()))
    return answer


@pytest.mark.parametrize(
    ("spec", "paths", "said"),
    [
        ({}, ["a.pt"], "the job names no outputs"),
        ({"inputs": [{"url": "http://127.0.0.1/a", "to": "a"}]}, ["a.pt"], "the job names no outputs"),
        ({"outputs": ["*.pt"]}, [".bash_login"], "none of the job's outputs"),
        ({"outputs": ["*.pt"]}, [".bash_login", "a.pt"], "none of the job's outputs"),
        ({"outputs": ["*"]}, [".bash_login"], "none of the job's outputs"),
        ({"outputs": ["*"]}, ["../a"], "leaves its folder"),
        ({"outputs": ["*"]}, ["/a"], "leaves its folder"),
    ],
)
def test_what_a_job_does_not_name_as_outputs_is_refused(
    service: Service, spec: dict[str, Any], paths: list[str], said: str
) -> None:
    service.worker.sync()
    job = service.submit(**spec)
    service.worker.begin(job)
    answer = send(service, job, *paths)
    assert answer.status == 422, answer.data
    assert said in answer.error[2]
    assert service.ask("GET", f"/jobs/{job}/outputs").json["outputs"] == []


def test_what_a_job_names_is_taken_and_listed_with_its_patterns(service: Service) -> None:
    service.worker.sync()
    job = service.submit(outputs=["*.pt"])
    service.worker.begin(job)
    assert send(service, job, "a.pt").status == 200
    (row,) = service.ask("GET", f"/jobs/{job}/outputs").json["outputs"]
    assert (row["files"], row["bytes"], row["patterns"]) == (1, 1, ["*.pt"])
