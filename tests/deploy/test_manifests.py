"""What a real API server says of the manifests, and what it lets Swell do with the roles in them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.binaries import program
from cluster.cluster import Cluster

from .chart import ACCOUNT, JOBS_NAMESPACE, NAMESPACE, VARIANTS, render_manifests, rendered
from .schemas import write_schemas

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: (group, resource) → what Swell may do with it where it runs jobs; in other namespaces it reads.
READS = frozenset({"get", "list", "watch"})
CHANGES = READS | {"create", "patch", "delete"}
EVERYWHERE = {
    ("", "namespaces"): frozenset({"list", "watch"}),
    ("", "nodes"): frozenset({"list", "watch"}),
    ("", "pods"): READS,
    ("", "resourcequotas"): frozenset({"list"}),
    ("batch", "jobs"): READS,
    ("jobset.x-k8s.io", "jobsets"): READS,
    ("kubeflow.org", "mpijobs"): READS,
    ("kubeflow.org", "pytorchjobs"): READS,
    ("scheduling.x-k8s.io", "podgroups"): frozenset({"list"}),
    ("scheduling.k8s.io", "priorityclasses"): frozenset({"list"}),
    ("scheduling.k8s.io", "podgroups"): frozenset({"list"}),
    ("scheduling.k8s.io", "workloads"): frozenset({"list"}),
    ("policy", "poddisruptionbudgets"): frozenset({"list"}),
    ("node.k8s.io", "runtimeclasses"): frozenset({"get"}),
    ("storage.k8s.io", "storageclasses"): frozenset({"get"}),
    ("", "persistentvolumes"): frozenset({"get"}),
    ("coordination.k8s.io", "leases"): frozenset({"list"}),
    ("authentication.k8s.io", "tokenreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset({"create"}),
    ("authentication.k8s.io", "userextras/swell.dev/job"): frozenset({"impersonate"}),
}
WHERE_IT_RUNS_JOBS = EVERYWHERE | {
    ("", "pods"): CHANGES,
    ("", "pods/binding"): frozenset({"create"}),
    ("", "pods/eviction"): frozenset({"create"}),
    ("", "pods/status"): frozenset({"patch"}),
    ("", "pods/log"): frozenset({"get"}),
    ("", "secrets"): frozenset({"create", "patch", "delete"}),
    ("", "services"): frozenset({"create", "patch", "delete"}),
    ("", "persistentvolumeclaims"): frozenset({"get", "patch", "create", "delete"}),
    ("", "events"): frozenset({"list", "create", "patch"}),
    ("batch", "jobs"): CHANGES,
    ("jobset.x-k8s.io", "jobsets"): CHANGES,
    ("kubeflow.org", "mpijobs"): CHANGES,
    ("kubeflow.org", "pytorchjobs"): CHANGES,
    ("", "serviceaccounts"): frozenset({"impersonate"}),
}
LEASES = {("coordination.k8s.io", "leases"): frozenset({"list", "get", "create", "update"})}
#: Pods of its own keep GPUs for jobs that share them, and say that jobs wait for nodes, also where it runs no jobs.
OF_ITS_OWN = {
    ("", "pods"): CHANGES,
    ("", "pods/binding"): frozenset({"create"}),
    ("", "pods/status"): frozenset({"patch"}),
    ("", "pods/log"): frozenset({"get"}),
}
#: What an administrator would be asked about, word by word.
REFUSED = (
    "get secrets",
    "list secrets",
    "watch secrets",
    "create pods/exec",
    "create pods/ephemeralcontainers",
    "patch nodes",
    "delete nodes",
    "deletecollection pods",
    "create clusterroles.rbac.authorization.k8s.io",
    "create rolebindings.rbac.authorization.k8s.io",
    "impersonate users",
    "impersonate groups",
    "impersonate uids.authentication.k8s.io",
    "impersonate userextras/scopes.authentication.k8s.io",
    "create serviceaccounts/token",
    "get configmaps",
    "create validatingwebhookconfigurations.admissionregistration.k8s.io",
    "create customresourcedefinitions.apiextensions.k8s.io",
)


def test_kubeconform_knows_every_field(control_plane: Cluster, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    pattern = write_schemas(control_plane.api.get("/openapi/v2"), tmp_path / "schemas")
    for name, values in VARIANTS.items():
        done = kubeconform(pattern, yaml.safe_dump_all(rendered(values)))
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    for path in render_manifests().TARGET.iterdir():
        done = kubeconform(pattern, path.read_text())
        assert done.returncode == 0, f"{path}: {done.stdout}{done.stderr}"
    misspelt = [{**document, "spce": {}} for document in rendered()]
    assert "additional properties 'spce' not allowed" in kubeconform(pattern, yaml.safe_dump_all(misspelt)).stdout


def kubeconform(pattern: str, text: str) -> subprocess.CompletedProcess[str]:
    words = [str(program("kubeconform")), "-strict", "-summary", "-schema-location", pattern, "-"]
    return subprocess.run(words, input=text, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def namespaces(control_plane: Cluster) -> None:
    """A dry run makes no namespace for what follows it."""
    control_plane.api.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": restricted(name)} for name in ALL))


ALL = (NAMESPACE, JOBS_NAMESPACE, "ml", "hpc", "elsewhere")


def restricted(name: str) -> dict[str, Any]:
    """Pod Security at its strictest: what it would not let run is said when the Deployment is made."""
    words = ("enforce", "warn")
    return {"name": name, "labels": {f"pod-security.kubernetes.io/{word}": "restricted" for word in words}}


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_api_server_would_take_every_variant_without_a_warning(control_plane: Cluster, variant: str) -> None:
    done = apply(control_plane, yaml.safe_dump_all(rendered(VARIANTS[variant])), "--dry-run=server")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("namespaces")
def test_an_api_server_would_take_the_plain_manifests(control_plane: Cluster) -> None:
    for path in render_manifests().TARGET.iterdir():
        done = apply(control_plane, path.read_text(), "--dry-run=server")
        assert done.returncode == 0, done.stderr


def apply(cluster: Cluster, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(program("kubectl")), "--kubeconfig", str(cluster.kubeconfig), "apply", "--server-side"]
    command += ["--validate=strict", "-f", "-", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        (
            "as it is",
            {
                NAMESPACE: EVERYWHERE | OF_ITS_OWN | LEASES,
                JOBS_NAMESPACE: WHERE_IT_RUNS_JOBS,
                "ml": EVERYWHERE,
                "elsewhere": EVERYWHERE,
            },
        ),
        (
            "in all namespaces",
            {
                NAMESPACE: WHERE_IT_RUNS_JOBS | LEASES,
                JOBS_NAMESPACE: WHERE_IT_RUNS_JOBS,
                "ml": WHERE_IT_RUNS_JOBS,
                "elsewhere": WHERE_IT_RUNS_JOBS,
            },
        ),
        (
            "in two namespaces",
            {
                NAMESPACE: EVERYWHERE | OF_ITS_OWN | LEASES,
                JOBS_NAMESPACE: WHERE_IT_RUNS_JOBS,
                "ml": WHERE_IT_RUNS_JOBS,
                "hpc": WHERE_IT_RUNS_JOBS,
                "elsewhere": EVERYWHERE,
            },
        ),
    ],
)
def test_swell_may_do_this_and_nothing_else(
    control_plane: Cluster, variant: str, expected: dict[str, dict[tuple[str, str], frozenset[str]]]
) -> None:
    text = yaml.safe_dump_all(rendered(VARIANTS[variant]))
    try:
        assert apply(control_plane, text).returncode == 0
        assert {namespace: allowed(control_plane, namespace) for namespace in expected} == expected
        for asked in REFUSED:
            assert not can(control_plane, asked, "elsewhere"), asked
    finally:
        control_plane.api.kubectl("delete", "--wait", "-f", "-", stdin=text)
    assert not any(allowed(control_plane, namespace) for namespace in expected)


def allowed(cluster: Cluster, namespace: str) -> dict[tuple[str, str], frozenset[str]]:
    """What the authorizer itself lists, without what everybody in a cluster may do."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    own, everybodys = (rules(cluster, namespace, user) for user in (ACCOUNT, "system:serviceaccount:default:nobody"))
    for rule in [rule for rule in own if rule not in everybodys]:
        assert not rule.get("resourceNames")
        for key in ((group, resource) for group in rule["apiGroups"] for resource in rule["resources"]):
            found[key] = found.get(key, frozenset()) | frozenset(rule["verbs"])
    return found


def rules(cluster: Cluster, namespace: str, user: str) -> list[dict[str, Any]]:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    groups = ["--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
    words = ("create", "--raw", path, f"--as={user}", *groups, "-f", "-")
    answer = json.loads(cluster.api.kubectl(*words, stdin=json.dumps(body)))
    return list(answer["status"]["resourceRules"])


def can(cluster: Cluster, asked: str, namespace: str) -> bool:
    """`kubectl auth can-i` knows no kinds that are not installed, so the review is asked for itself."""
    verb, _, what = asked.partition(" ")
    resource, _, group = what.partition(".")
    resource, _, subresource = resource.partition("/")
    what_exactly = {"group": group, "resource": resource, "subresource": subresource, "namespace": namespace}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    spec = {"user": ACCOUNT, "groups": groups, "resourceAttributes": {"verb": verb, **what_exactly}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])
