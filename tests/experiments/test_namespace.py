"""How is the namespace of a run removed, and when is that given up? On an API server on loopback, in time of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.apiserver import ApiServer, Place
from engines.kubernetes.conftest import access_to
from engines.kubernetes.wire import Request
from swell.engines.kubernetes import ApiClient
from swell.errors import Conflict
from swell.experiments.kubernetes.namespace import ExperimentNamespace

NAME = "race"
KEY = ("", NAME)


class Terminating(ApiServer):
    """Its namespaces stay until nothing is left in them."""

    def _write(self, place: Place, request: Request) -> Any:
        if request.method == "DELETE" and place.plural == "namespaces":
            return self.says("Some resources are remaining: pods. has 3 resource instances")
        return super()._write(place, request)

    def says(self, message: str) -> Any:
        condition = {"type": "NamespaceContentRemaining", "status": "True", "message": message}
        held = self.storage.get("namespaces", KEY)
        return self.storage.update("namespaces", KEY, {**held, "status": {"conditions": [condition]}})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Terminating]:
    server = Terminating(tmp_path / "token")
    yield server
    server.close()


class Deletion:
    """Time passes only while somebody waits, a minute each time; then `steps` says what has gone meanwhile."""

    def __init__(self, server: Terminating, folder: Path, steps: dict[int, int | str]) -> None:
        self.now = 0.0
        self._server = server
        self._steps = steps  #: by minute: so many pods, or what the namespace says of other objects
        self._pods = 0
        self._client = ApiClient(access_to(server), answer_s=5.0)
        self._namespace = ExperimentNamespace(self._client, NAME, folder, clock=lambda: self.now, pause=self._pause)
        server.storage.create("serviceaccounts", (NAME, "default"), {})
        self._namespace.make()

    def add(self, pods: int) -> None:
        for number in range(self._pods, self._pods + pods):
            self._server.storage.create("pods", (NAME, f"pod-{number}"), {"spec": {}})
        self._pods += pods

    def remove(self) -> None:
        try:
            self._namespace.remove()
        finally:
            self._client.close()

    def _pause(self, _: float) -> None:
        self.now += 60.0
        step = self._steps.get(round(self.now / 60), 0)
        if isinstance(step, str):
            self._server.says(step)
            return
        for _number in range(step):
            self._pods -= 1
            self._server.storage.delete("pods", (NAME, f"pod-{self._pods}"), {})
        if not self._pods:
            self._server.storage.delete("namespaces", KEY, {})


def test_a_namespace_is_waited_for_as_long_as_something_in_it_is_deleted(server: Terminating, tmp_path: Path) -> None:
    """Five minutes for everything were too few for 10,000 pods."""
    deletion = Deletion(server, tmp_path, {4: 1, 8: 1, 12: 1})
    deletion.add(3)
    deletion.remove()
    assert (deletion.now, server.storage.state("namespaces")) == (12 * 60.0, {})


def test_objects_of_other_kinds_that_go_are_progress_too(server: Terminating, tmp_path: Path) -> None:
    two = "Some resources are remaining: jobs.batch has 1 resource instances, pods. has 1 resource instances"
    deletion = Deletion(server, tmp_path, {4: two, 8: 1})
    deletion.add(1)
    deletion.remove()
    assert deletion.now == 8 * 60.0


def test_a_namespace_of_which_nothing_is_deleted_any_more_is_refused(server: Terminating, tmp_path: Path) -> None:
    deletion = Deletion(server, tmp_path, {2: 1})
    deletion.add(3)
    with pytest.raises(Conflict) as refusal:
        deletion.remove()
    assert deletion.now == 8 * 60.0
    assert str(refusal.value) == (
        "namespace 'race' does not go away: nothing in it was deleted for 5 minutes, and it still has 2 pods (Some "
        "resources are remaining: pods. has 3 resource instances); remove what holds it, then run the same command to "
        "continue"
    )
