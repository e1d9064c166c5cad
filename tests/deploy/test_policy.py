"""Who may write the labels and annotations by which Swell knows its own? The chart's policy, on a real API server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.binaries import program
from cluster.cluster import Cluster
from swell.engines.kubernetes import ApiClient, find_access
from swell.engines.kubernetes.client.impersonation import MARKED
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.election.service_pod import SERVES
from swell.engines.kubernetes.watch import observed_objects as names
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.errors import SwellError

from .chart import ACCOUNT, VARIANTS, Document, of_kind, rendered

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
PATIENCE_S = 60.0  # an API server notices a policy within a second
SAID = "and only Swell writes them"
MINE = {"swell.dev/job": "7"}
EVA = ("--as=eva", "--as-group=system:authenticated")
OPERATOR = ("--as=system:serviceaccount:jobset-system:jobset", "--as-group=system:serviceaccounts:jobset-system")
OWNER = ("--as=owner", "--as-group=system:authenticated")


def template(**metadata: Any) -> Document:
    container = {"name": "main", "image": "busybox"}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}


def pod(**metadata: Any) -> Document:
    return {"apiVersion": "v1", "kind": "Pod", **template(name="one", namespace="ml", **metadata)}


def job(**metadata: Any) -> Document:
    return of("batch/v1", "Job", {"template": template(**metadata)})


def of(version: str, kind: str, spec: Document) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "one", "namespace": "ml"}, "spec": spec}


def deployment(**metadata: Any) -> Document:
    labels = {"app": "one", **metadata.pop("labels", {})}
    made = template(labels=labels, **metadata)
    made["spec"]["restartPolicy"] = "Always"
    return of("apps/v1", "Deployment", {"selector": {"matchLabels": {"app": "one"}}, "template": made})


def cron(**metadata: Any) -> Document:
    return of(
        "batch/v1", "CronJob", {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template(**metadata)}}}
    )


def jobset(**metadata: Any) -> Document:
    jobs = [{"name": "workers", "template": {"spec": {"template": template(**metadata)}}}]
    return of("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})


def pytorch(**metadata: Any) -> Document:
    return of("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": template(**metadata)}}})


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_swell_believes_is_reserved_and_what_users_write_is_not(variant: str) -> None:
    policy = next(iter(of_kind(rendered(VARIANTS[variant]), POLICIES[0]).values()))
    [listed] = [one["expression"] for one in policy["spec"]["variables"] if one["name"] == "reserved"]
    believed = {
        STORE,
        SERVES,
        "swell.dev/stand-in-role",
        names.SERVER,
        names.SUSPENDED,
        names.SHARE_MIB,
        *(key for key in (*names.KEPT_LABELS, *names.KEPT_ANNOTATIONS) if key.startswith("swell.dev/")),
    }
    assert set(json.loads(listed.replace("'", '"'))) == believed


def test_without_it_there_is_none() -> None:
    documents = rendered({"admissionPolicy": {"enabled": False}})
    assert [one for one in documents if one["kind"] in POLICIES] == []


@pytest.fixture(scope="module")
def cluster(control_plane: Cluster) -> Iterator[Cluster]:
    """With the policy in force, and users who may do everything in their namespace, or everything and `mark`."""
    api = control_plane.api
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}, *map(kind_of, CUSTOM))
    api.kubectl(
        "create",
        "rolebinding",
        "eva",
        "-n",
        "ml",
        "--clusterrole=edit",
        "--user=eva",
        "--user=owner",
        f"--user={ACCOUNT}",
    )
    api.kubectl(
        "create", "role", "sets", "-n", "ml", "--verb=*", "--resource=jobsets.jobset.x-k8s.io,pytorchjobs.kubeflow.org"
    )
    api.kubectl("create", "rolebinding", "sets", "-n", "ml", "--role=sets", "--user=eva")
    api.kubectl(
        "create",
        "rolebinding",
        "jobset",
        "-n",
        "ml",
        "--clusterrole=edit",
        "--group=system:serviceaccounts:jobset-system",
    )
    mark = {"apiGroups": ["swell.dev"], "resources": ["jobs"], "verbs": ["mark"]}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    api.apply({**kind, "metadata": {"name": "mark", "namespace": "ml"}, "rules": [mark]}, namespace="ml")
    api.kubectl("create", "rolebinding", "mark", "-n", "ml", "--role=mark", "--user=owner")
    policies = [one for one in rendered() if one["kind"] in POLICIES]
    api.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(policies))
    end = time.monotonic() + PATIENCE_S
    while SAID not in create(control_plane, pod(labels=MINE), EVA):
        assert time.monotonic() < end, "the policy is not in force"
    yield control_plane
    api.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(policies))


CUSTOM = (("jobset.x-k8s.io", "v1alpha2", "JobSet"), ("kubeflow.org", "v1", "PyTorchJob"))


def kind_of(custom: tuple[str, str, str]) -> Document:
    """Without its fields."""
    group, version, kind = custom
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    plural = f"{kind.lower()}s"
    called = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    notes = {"api-approved.kubernetes.io": "unapproved, in a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": notes},
        "spec": {"group": group, "scope": "Namespaced", "names": called, "versions": versions},
    }


def create(cluster: Cluster, document: Document, whom: tuple[str, ...]) -> str:
    """Empty: it would be created."""
    return said(cluster, ("create", "--dry-run=server", "-f", "-", *whom), json.dumps(document))


def said(cluster: Cluster, words: tuple[str, ...], stdin: str = "") -> str:
    command = [str(program("kubectl")), "--kubeconfig", str(cluster.kubeconfig), *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not done.stderr or "Warning" in done.stderr), done.stderr
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("make", [pod, job, deployment, cron, jobset, pytorch])
def test_a_user_cannot_write_them_on_an_object_or_in_a_template(cluster: Cluster, make: Any) -> None:
    assert SAID in create(cluster, make(labels=MINE), EVA)
    assert SAID in create(cluster, make(annotations={"swell.dev/attempt": "7.1"}), EVA)
    on_object = make()
    on_object["metadata"]["labels"] = {"swell.dev/store": "s"}
    assert SAID in create(cluster, on_object, EVA)
    own = {"swell.dev/priority": "5", "swell.dev/gpu-memory": "6GiB", "swell.dev/state": "queued", "a": "b"}
    assert create(cluster, make(annotations=own), EVA) == ""
    assert create(cluster, make(), EVA) == ""


@pytest.mark.parametrize(
    "whom", [(f"--as={ACCOUNT}",), OPERATOR, OWNER, ()], ids=["swell", "operator", "mark", "admin"]
)
def test_swell_controllers_and_those_who_may_can(cluster: Cluster, whom: tuple[str, ...]) -> None:
    assert create(cluster, pod(labels=MINE), whom) == ""


def test_swell_can_in_a_users_name_too_which_only_swell_may_say(cluster: Cluster) -> None:
    """The request's user is eva then, who may not write them."""
    client = ApiClient(find_access(cluster.kubeconfig, None))
    try:
        eva = (("Impersonate-User", "eva"), ("Impersonate-Group", "system:authenticated"))
        with pytest.raises(SwellError, match=SAID):
            client.create(PODS, pod(labels=MINE), "ml", dry_run=True, headers=eva)
        client.create(PODS, pod(labels=MINE), "ml", dry_run=True, headers=(*eva, (MARKED, "7")))
    finally:
        client.close()


def test_what_is_there_may_stay_or_be_taken_away_and_not_be_changed(cluster: Cluster) -> None:
    cluster.api.apply(pod(labels=MINE, annotations={"swell.dev/server": "s"}), namespace="ml")
    try:
        assert said(cluster, ("label", "pod", "one", "-n", "ml", "a=b", *EVA)) == ""
        assert SAID in said(cluster, ("label", "pod", "one", "-n", "ml", "--overwrite", "swell.dev/job=8", *EVA))
        assert SAID in said(cluster, ("annotate", "pod", "one", "-n", "ml", "swell.dev/rank=0", *EVA))
        assert said(cluster, ("annotate", "pod", "one", "-n", "ml", "swell.dev/server-", *EVA)) == ""
    finally:
        cluster.api.kubectl("delete", "pod", "one", "-n", "ml", "--grace-period=0", "--force")
