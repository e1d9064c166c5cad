"""What of an object reaches beyond its pod."""

from __future__ import annotations

from typing import Any

import pytest

from swell.manifests.privileges import Privilege, find_privilege

from .kubernetes import container, jobset, pod, replicated, template


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"hostPID": True}, "spec.hostPID"),
        ({"hostIPC": True}, "spec.hostIPC"),
        ({"volumes": [{"emptyDir": {}}, {"hostPath": {"path": "/"}}]}, "spec.volumes[1].hostPath"),
        ({"initContainers": [{"securityContext": {"privileged": True}}]}, "spec.initContainers[0].securityContext.pri"),
    ],
)
def test_a_pod_that_reaches_into_its_node_is_found(fields: dict[str, Any], path: str):
    found = find_privilege(pod(**fields))
    assert found is not None
    assert found.path.startswith(path)


def test_it_is_found_in_the_templates_of_every_kind():
    inner = template(container(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE", "SYS_ADMIN"]}}))
    where = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].securityContext.capabilities.add"
    assert find_privilege(jobset(replicated("a", template=inner))) == Privilege(where, "rights of root")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"hostNetwork": False, "volumes": [{"emptyDir": {}}]},
        {"containers": [container(securityContext={"privileged": False, "capabilities": {"drop": ["ALL"]}})]},
        {"containers": [container(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}})]},
        {"containers": 7, "volumes": None},
        {"containers": [{"environment": {"privileged": True, "hostPath": "/data"}}], "env": {"hostIPC": True}},
    ],
)
def test_a_pod_that_does_not_is_let_through(fields: dict[str, Any]):
    assert find_privilege(pod(**fields)) is None
