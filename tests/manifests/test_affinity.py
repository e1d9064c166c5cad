"""Which nodes a pod asks for, and what is only noted."""

from __future__ import annotations

from typing import Any

import pytest

from swell.model.job import JobSpec
from swell.model.placement import Company, Effect, Operator, PlacementRules, Requirement, Term, Toleration

from .kubernetes import container, job, jobset, pod, pytorchjob, read, refusal, replicas, replicated, template, told

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"


def rules(**spec: Any) -> PlacementRules | None:
    found = read(pod(**spec))
    assert told(found) == ()
    return found.roles[0].rules


def node_affinity(*terms: object) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def expression(key: object, operator: object, *values: object) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def others(kind: str, topology: str = HOSTNAME, **term: Any) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": topology, **term}]}}}


def company(spec: JobSpec) -> list[Company]:
    return [Company.ANY if role.rules is None else role.rules.company for role in spec.roles]


# -- nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [{}, {"affinity": {}}, {"nodeSelector": {}, "tolerations": []}])
def test_a_pod_that_says_nothing_of_nodes_has_no_rules(nothing):
    assert rules(**nothing) is None


def test_a_selector_terms_and_tolerations_are_read():
    first = {
        "matchExpressions": [
            expression("zone", "In", "a", "b"),
            expression("spot", "DoesNotExist"),
            expression("cores", "Gt", "16"),
        ],
        "matchFields": [expression("metadata.name", "NotIn", "n7")],
    }
    tolerations = [
        {"operator": "Exists"},
        {"key": "gpu", "value": "a100", "effect": "NoSchedule"},
        {"key": "example.com/spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": "own", "operator": "Equal"},
    ]
    given = {**node_affinity(first, {}), "nodeSelector": {"gpu": "a100", "disk": ""}, "tolerations": tolerations}
    assert rules(**given) == PlacementRules(
        selector=(("disk", ""), ("gpu", "a100")),
        terms=(
            Term(
                (
                    Requirement("zone", Operator.IN, ("a", "b")),
                    Requirement("spot", Operator.DOES_NOT_EXIST),
                    Requirement("cores", Operator.GT, ("16",)),
                ),
                (Requirement("metadata.name", Operator.NOT_IN, ("n7",)),),
            ),
            Term(),
        ),
        tolerations=(
            Toleration("", None),
            Toleration("gpu", "a100", Effect.NO_SCHEDULE),
            Toleration("example.com/spot", None, Effect.NO_EXECUTE),
            Toleration("own", ""),
        ),
    )


def test_every_role_has_the_rules_of_its_own_template():
    on = {"nodeSelector": {"gpu": "a100"}}
    wanted = [None, PlacementRules(selector=(("gpu", "a100"),))]
    worker = {"replicas": 2, "template": template(**on)}
    assert [role.rules for role in read(pytorchjob(replicas(1), worker)).roles] == wanted
    both = jobset(replicated("a"), replicated("b", template=template(**on)))
    assert [role.rules for role in read(both).roles] == wanted
    assert [role.rules for role in read(job(pod=template(**on), completions=5)).roles] == wanted[1:]
    assert [role.rules for role in read(pod(container(), container(name="b"), **on)).roles] == wanted[1:] * 2


TERMS = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"nodeSelector": {"gpu": 1}},
            "nodeSelector: gpu: a number: 1 cannot be the value of a label: up to 63 letter",
        ),
        ({"nodeSelector": {"a/b/c": "x"}}, "nodeSelector: 'a/b/c' cannot be the name of a label; write zone, or"),
        ({"nodeSelector": {"x": "y" * 64}}, "nodeSelector: x: 'yyy"),
        (node_affinity(), f"{TERMS} is empty, so no node can match; give a term, or leave {REQUIRED} out"),
        (node_affinity({"matchLabels": {}}), f"{TERMS}[0] has no field 'matchLabels'; did you mean 'matchFields'?"),
        (
            node_affinity({"matchExpressions": [expression("a", "In")]}),
            f"{TERMS}[0].matchExpressions[0].values of In must hold at least one value",
        ),
        (
            node_affinity({"matchExpressions": [expression("a", "Exists", "x")]}),
            f"{TERMS}[0].matchExpressions[0].values of Exists must be left out",
        ),
        (
            node_affinity({"matchExpressions": [expression("a", "Gt", "1.5")]}),
            f"{TERMS}[0].matchExpressions[0].values of Gt must be one whole number, but is a list: ['1.5']",
        ),
        (
            node_affinity({"matchExpressions": [expression("a", "Lt", "1", "2")]}),
            f"{TERMS}[0].matchExpressions[0].values of Lt must be one whole number, but is a list: ['1', '2']",
        ),
        (
            node_affinity({"matchExpressions": [expression("a", "in", "1")]}),
            f"{TERMS}[0].matchExpressions[0].operator must be one of In, NotIn, Exists, DoesNotExist, Gt, Lt, but is ",
        ),
        (
            node_affinity({"matchFields": [expression("metadata.name", "In", "a", "b")]}),
            f"{TERMS}[0].matchFields[0].values must be the name of one node, but is a list: ['a', 'b']",
        ),
        (
            node_affinity({"matchFields": [expression("spec.x", "In", "a")]}),
            f"{TERMS}[0].matchFields[0].key must be one of metadata.name, but is 'spec.x'",
        ),
        (node_affinity(*[{}] * 201), f"{TERMS} has 201 entries; the maximum is 200"),
        ({"tolerations": [{}]}, "tolerations[0] has no key; to tolerate every taint write operator: Exists"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "tolerations[0].value is given, but with the operator Exists every value is tolerated; leave it out",
        ),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "tolerations[0].effect must be one of NoSchedule, Pref"),
        (
            {"tolerations": [{"key": "a", "operator": "Lt"}]},
            "tolerations[0].operator must be one of Equal, Exists, but",
        ),
        ({"tolerations": [{"key": 0}]}, "tolerations[0].key must be text, but is a number: 0"),
        ({"tolerations": 5}, "tolerations must be a list, but is a number: 5"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(given, said):
    assert refusal(pod(**given)).startswith(f"spec.{said}")


# -- wishes and other pods -----------------------------------------------------------------------------------------


def test_wishes_are_noted_and_have_no_effect():
    wish = {"weight": 1, "preference": {"matchExpressions": []}}
    spec = read(pod(affinity={"nodeAffinity": {PREFERRED: [wish]}, "podAntiAffinity": {PREFERRED: [wish]}}))
    assert spec.roles[0].rules is None
    assert told(spec) == (
        f"spec.affinity.nodeAffinity.{PREFERRED} is a wish and has no effect",
        f"spec.affinity.podAntiAffinity.{PREFERRED} is a wish and has no effect",
    )


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "train"}},
        {"matchExpressions": [expression("app", "In", "train", "other"), expression("tier", "DoesNotExist")]},
        {},
    ],
)
def test_tasks_whose_own_label_they_keep_away_from_are_apart(selector):
    labelled = {"metadata": {"labels": {"app": "train"}}}
    for kind, wanted in (("podAntiAffinity", Company.APART), ("podAffinity", Company.TOGETHER)):
        own = {**labelled, **template(**others(kind, labelSelector=selector))}
        spec = read(job(pod=own, completions=4, parallelism=4))
        assert (company(spec), told(spec)) == ([wanted], ())


def test_labels_that_controllers_give_their_pods_count():
    def apart(key: str, value: str) -> dict[str, Any]:
        return template(**others("podAntiAffinity", labelSelector={"matchLabels": {key: value}}))

    a_job = read(job(pod=apart("job-name", "sweep"), completions=2))
    kubeflow = {"replicas": 2, "template": apart("training.kubeflow.org/replica-type", "worker")}
    in_set = replicated("w", 2, template=apart("jobset.sigs.k8s.io/replicatedjob-name", "w"))
    assert company(a_job) == [Company.APART]
    assert company(read(pytorchjob(replicas(1), kubeflow))) == [Company.ANY, Company.APART]
    assert company(read(jobset(replicated("a"), in_set))) == [Company.ANY, Company.APART]


@pytest.mark.parametrize(
    "given",
    [
        others("podAntiAffinity", labelSelector={"matchLabels": {"app": "another"}}),
        others("podAntiAffinity", "topology.kubernetes.io/zone", labelSelector={}),
        others("podAntiAffinity"),
        others("podAntiAffinity", labelSelector={}, namespaces=["x"]),
    ],
)
def test_what_is_asked_of_other_pods_is_noted(given):
    spec = read(pod(**given))
    assert spec.roles[0].rules is None
    assert told(spec) == (
        (
            f"spec.affinity.podAntiAffinity.{REQUIRED}[0] is not about this role's own tasks on single nodes "
            "and has no effect"
        ),
    )


def test_together_and_apart_at_once_is_refused():
    both = {
        **others("podAffinity", labelSelector={})["affinity"],
        **others("podAntiAffinity", labelSelector={})["affinity"],
    }
    assert refusal(pod(affinity=both)) == (
        f"spec.affinity.podAntiAffinity.{REQUIRED}[0]: podAffinity and podAntiAffinity contradict each other; "
        "remove one"
    )
