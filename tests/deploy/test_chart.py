"""What the chart makes of its values, and what it refuses. Nothing is installed; no cluster is needed."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import replace
from typing import Any

import pytest

from swell.config import parse_config
from swell.machine.listening import read_listening

from .chart import CHART, JOBS_NAMESPACE, NAMESPACE, VARIANTS, helm, of_kind, render_manifests, rendered

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_is_without_fault(variant: str) -> None:
    done = helm("lint", "--strict", CHART, values=VARIANTS[variant])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plain_manifests_are_what_the_chart_renders() -> None:
    tool = render_manifests()
    helm_program = str(helm("version").args[0])
    made = {name: tool.render(helm_program, values) for name, values in tool.VARIANTS.items()}
    kept = {path.name: path.read_text() for path in tool.TARGET.iterdir()}
    assert kept == made, "run: .venv/bin/python tools/render_manifests.py --helm HELM"


def test_nothing_of_helm_is_in_the_plain_manifests() -> None:
    for path in render_manifests().TARGET.iterdir():
        assert "helm.sh" not in path.read_text()
        assert "managed-by" not in path.read_text()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"door": {"enabled": True}}, "additional properties 'door' not allowed"),
        ({"config": {"limit": {}}}, "additional properties 'limit' not allowed"),
        ({"config": {"cluster": {"stand_ins": "no"}}}, "got string, want boolean"),
        ({"config": {"cluster": {"namespace": "ml"}}}, "additional properties 'namespace' not allowed"),
        ({"config": {"limits": {"default": {"gpu": 1}}}}, "additional properties 'gpu' not allowed"),
        ({"jobsNamespace": NAMESPACE}, "jobsNamespace is swell, the release's own namespace: whoever may create pods"),
        ({"jobsNamespace": "Not_A_Name"}, "does not match pattern"),
        ({"config": {"notices": {"addresses": ["hooks.slack.com"]}}}, "does not match pattern"),
        ({"config": {"notices": {"commands": True}}}, "additional properties 'commands' not allowed"),
        ({"clusterWide": "yes"}, "got string, want boolean"),
        ({"clusterWide": True, "namespaces": ["ml"]}, "clusterWide is true and namespaces are named"),
        ({"impersonation": {"users": ["*"]}}, "not"),
        ({"impersonation": {"groups": ["*"]}}, "not"),
        ({"impersonation": {"groups": ["ml", "system:masters"]}}, "impersonation.groups names system:masters"),
        ({"networkPolicy": {"egressPorts": []}}, "minItems: got 0, want 1"),
        ({"networkPolicy": {"egressPorts": [0]}}, "minimum: got 0, want 1"),
        ({"service": {"port": "eighty"}}, "got string, want integer"),
        ({"replicas": 0}, "minimum: got 0, want 1"),
        ({"image": {"pullPolicy": "Sometimes"}}, "value must be one of"),
        ({"doors": {"enabled": True}}, "doors.user is needed: whoever reaches a door acts as this user of the cluster"),
        ({"doors": {"enabled": True, "user": "eva", "from": []}}, "minItems: got 0, want 1"),
        (
            {"doors": {"enabled": True, "user": "eva"}, "networkPolicy": {"enabled": False}},
            "doors.enabled needs networkPolicy.enabled: the doors want no token",
        ),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, Any], said: str) -> None:
    done = helm("template", "swell", CHART, "--namespace", NAMESPACE, values=values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_pod_needs_no_privilege_and_no_user_of_its_own(variant: str) -> None:
    pod = of_kind(rendered(VARIANTS[variant]), "Deployment")["swell"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    group = {} if variant == "openshift" else {"fsGroup": 10001, "fsGroupChangePolicy": "OnRootMismatch"}
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **group}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_server_reads_the_settings_as_they_were_given(variant: str) -> None:
    config = of_kind(rendered(VARIANTS[variant]), "ConfigMap")["swell"]["data"]["config.json"]
    given = parse_config(VARIANTS[variant].get("config", {}))
    assert replace(parse_config(json.loads(config)), doors=()) == given


def test_doors_are_served_under_the_old_names_and_ports_and_act_as_the_user_that_was_named() -> None:
    documents = rendered(VARIANTS["with doors"])
    expected = {"genai-workload-manager-service": 8000, "monitor": 6000, "job-metadata-manager-service": 5000}
    doors = parse_config(json.loads(of_kind(documents, "ConfigMap")["swell"]["data"]["config.json"])).doors
    found = {door.hosts[0]: (door.name, door.port, door.user, door.address) for door in doors}
    assert found == {
        name: ("genai", port, "system:serviceaccount:ml:default", "0.0.0.0") for name, port in expected.items()
    }
    [aliased] = [door for door in doors if door.hosts[0] == "job-metadata-manager-service"]
    expected["job-metadata-manager"] = 5000  # what the chart of before called it
    assert "job-metadata-manager" in aliased.hosts
    services = [one for one in documents if one["kind"] == "Service" and one["metadata"]["name"] in expected]
    ports = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"]["ports"][0]["port"] for one in services
    }
    assert ports == {(where, name): port for where in (NAMESPACE, JOBS_NAMESPACE) for name, port in expected.items()}
    elsewhere = {one["spec"]["externalName"] for one in services if one["metadata"]["namespace"] == JOBS_NAMESPACE}
    assert elsewhere == {f"{name}.{NAMESPACE}.svc.cluster.local" for name in expected}
    policy = of_kind(documents, "NetworkPolicy")["swell"]["spec"]["ingress"]
    assert [(sorted(str(port["port"]) for port in rule["ports"]), rule.get("from")) for rule in policy] == [
        (["http"], None),
        (["5000", "6000", "8000"], [{"podSelector": {}}]),
    ]


@pytest.mark.parametrize(
    ("variant", "made", "bound"),
    [
        ("as it is", ["swell-jobs"], ["swell-jobs"]),
        ("in all namespaces", ["swell-jobs"], []),
        ("in two namespaces", ["swell-jobs"], ["hpc", "ml", "swell-jobs"]),
        ("with jobs in one of two", [], ["hpc", "ml"]),
    ],
)
def test_jobs_that_name_no_namespace_have_one_that_is_not_the_servers(
    variant: str, made: list[str], bound: list[str]
) -> None:
    """Whoever could create pods beside the server could mount its secrets."""
    documents = rendered(VARIANTS[variant])
    assert list(of_kind(documents, "Namespace")) == made
    runs = [one for one in documents if one["kind"] == "RoleBinding" and one["roleRef"]["kind"] == "ClusterRole"]
    assert sorted(one["metadata"]["namespace"] for one in runs) == bound
    [container] = of_kind(documents, "Deployment")["swell"]["spec"]["template"]["spec"]["containers"]
    given = VARIANTS[variant].get("jobsNamespace", "swell-jobs")
    assert [word for word in container["args"] if "namespace" in word] == [
        "--namespace=swell",
        f"--jobs-namespace={given}",
    ]


def test_it_may_act_as_those_who_are_named_and_as_nobody_else_beside_accounts_of_its_namespaces() -> None:
    def rules(values: dict[str, Any]) -> list[dict[str, Any]]:
        roles = [one for one in rendered(values) if one["kind"] in ("Role", "ClusterRole")]
        return [rule for role in roles for rule in role["rules"] if "impersonate" in rule["verbs"]]

    own = [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/swell.dev/job"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
    ]
    assert rules({}) == own
    named = {"users": ["anna", "ben"], "groups": ["ml-team"]}
    assert rules({"impersonation": named}) == [
        *own,
        *(
            {"apiGroups": [""], "resources": [what], "resourceNames": names, "verbs": ["impersonate"]}
            for what, names in named.items()
        ),
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_may_create_jobs_everywhere_only_where_that_was_asked_for(variant: str) -> None:
    bindings = of_kind(rendered(VARIANTS[variant]), "ClusterRoleBinding")
    everywhere = ["swell-swell-run"] if VARIANTS[variant].get("clusterWide") else []
    everywhere += ["swell-swell-impersonate"] if VARIANTS[variant].get("impersonation") else []
    assert sorted(bindings) == sorted([*everywhere, "swell-swell-view"])


@pytest.mark.parametrize(("variant", "ports"), [("as it is", [443, 6443, 8443]), ("with everything", [443, 16443])])
def test_the_server_connects_to_names_and_to_tls_ports_and_never_to_a_clouds_metadata(
    variant: str, ports: list[int]
) -> None:
    policy = of_kind(rendered(VARIANTS[variant]), "NetworkPolicy")["swell"]["spec"]
    [names, others] = policy["egress"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert names == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert [port["port"] for port in others["ports"]] == ports
    metadata = (ipaddress.ip_address("169.254.169.254"), ipaddress.ip_address("fd00:ec2::254"))
    blocks = [block["ipBlock"] for block in others["to"]]
    for address in metadata:
        [block] = [one for one in blocks if address in ipaddress.ip_network(one["cidr"])]
        assert any(address in ipaddress.ip_network(one) for one in block["except"])


def test_doors_let_in_pods_beside_the_server_and_those_of_jobs_unless_somebody_else_is_named() -> None:
    policy = of_kind(rendered({"doors": {"enabled": True, "user": "eva"}}), "NetworkPolicy")["swell"]["spec"]["ingress"]
    jobs = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": JOBS_NAMESPACE}}}
    assert policy[1]["from"] == [{"podSelector": {}}, jobs]


def test_without_doors_nothing_answers_without_a_token() -> None:
    documents = rendered()
    assert list(of_kind(documents, "Service")) == ["swell"]
    assert of_kind(documents, "ConfigMap")["swell"]["data"]["config.json"] == "{}\n"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_server_understands_how_it_is_to_listen(variant: str) -> None:
    [container] = of_kind(rendered(VARIANTS[variant]), "Deployment")["swell"]["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(POD_IP)", "10.244.0.7").partition("=") for word in container["args"]]
    told = {name: value for name, _, value in words}
    allowed = tuple(value for name, _, value in words if name == "--allowed-host")
    listening = read_listening(told["--listen"], told["--advertise"], allowed)
    assert listening is not None
    port = container["ports"][0]["containerPort"]
    names = ("swell", f"swell.{NAMESPACE}", f"swell.{NAMESPACE}.svc", f"swell.{NAMESPACE}.svc.cluster.local")
    assert listening.port == port
    assert {f"{name}:{port}" for name in (*names, "10.244.0.7")} <= listening.hosts


def test_one_server_is_replaced_by_the_next_and_never_beside_it() -> None:
    documents = rendered()
    spec = of_kind(documents, "Deployment")["swell"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert "affinity" not in spec["template"]["spec"]
    assert of_kind(documents, "PodDisruptionBudget") == {}


def test_a_standby_is_on_the_node_of_the_disk_and_never_evicted_together_with_the_server() -> None:
    documents = rendered(VARIANTS["with a standby"])
    selector = {"app.kubernetes.io/name": "swell", "app.kubernetes.io/instance": "swell"}
    spec = of_kind(documents, "Deployment")["swell"]["spec"]
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert (spec["replicas"], spec["strategy"]) == (2, one_by_one)
    beside = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": selector}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}
    assert spec["template"]["spec"]["affinity"] == {"nodeAffinity": {}, "podAffinity": rule}
    budget = of_kind(documents, "PodDisruptionBudget")["swell"]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, {"matchLabels": selector})
    without = rendered({"replicas": 2, "podDisruptionBudget": {"enabled": False}})
    assert of_kind(without, "PodDisruptionBudget") == {}


@pytest.mark.parametrize("variant", VARIANTS)
def test_services_send_requests_to_the_pod_that_serves(variant: str) -> None:
    """All pods are ready, also the one that stands by."""
    documents = rendered(VARIANTS[variant])
    template = of_kind(documents, "Deployment")["swell"]["spec"]["template"]["metadata"]["labels"]
    services = [one["spec"] for one in documents if one["kind"] == "Service" and "selector" in one["spec"]]
    assert services
    for spec in services:
        assert spec["selector"].pop("swell.dev/serves") == "true"
        assert spec["selector"].items() <= template.items()
    assert "swell.dev/serves" not in template


def test_other_settings_make_another_pod() -> None:
    def mark(values: dict[str, Any]) -> str:
        template = of_kind(rendered(values), "Deployment")["swell"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["swell.dev/config"])

    assert mark({}) == mark({})
    assert mark({}) != mark({"config": {"admins": ["eva"]}})


def test_an_uninstalled_release_leaves_its_claim_unless_told_otherwise() -> None:
    kept = of_kind(rendered(), "PersistentVolumeClaim")["swell"]["metadata"]["annotations"]
    assert kept == {"helm.sh/resource-policy": "keep"}
    gone = of_kind(rendered({"persistence": {"keep": False}}), "PersistentVolumeClaim")["swell"]["metadata"]
    assert "annotations" not in gone
