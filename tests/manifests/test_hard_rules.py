"""What must be kept on a cluster is planned with or refused, never dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import Rejected
from swell.manifests import Context, read_document
from swell.manifests.affinity import NOT_KEPT, SPREAD_NOT_KEPT
from swell.manifests.kueue import EXPECTED
from swell.model.job import JobSpec
from swell.model.kind import ONLY_BY_KUBECTL
from swell.model.placement import Company

from .kubernetes import job, jobset, pod, pytorchjob, replicas, replicated, template

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
KINDS = {"podAffinity": Company.TOGETHER, "podAntiAffinity": Company.APART}


def read(document: dict[str, Any]) -> JobSpec:
    return read_document(document, Context(workdir="/", on_cluster=True))


def others(kind: str, topology: str = HOSTNAME, **term: Any) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": topology, **term}]}}}


def labelled(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, **template(**spec)}


def gang(pods: dict[str, Any]) -> dict[str, Any]:
    return job(pod=pods, completions=4, parallelism=4, completionMode="Indexed")


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(Rejected) as caught:
        read(document)
    return str(caught.value)


APP = {"matchLabels": {"app": "train"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "term",
    [
        {"labelSelector": {"matchLabels": {"app": "another"}}},
        {"labelSelector": APP, "topologyKey": ZONE},
        {"labelSelector": APP, "namespaces": ["other"]},
        {"labelSelector": APP, "namespaceSelector": {}},
        {"labelSelector": APP, "matchLabelKeys": ["pod-template-hash"]},
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["train"]}]}},
    ],
)
def test_a_rule_about_other_pods_or_about_more_than_single_nodes_is_refused(kind, term):
    said = refusal(gang(labelled({"app": "train"}, **others(kind, **term))))
    assert said == f"spec.template.spec.affinity.{kind}.{REQUIRED}[0] {NOT_KEPT}"


@pytest.mark.parametrize(("kind", "company"), KINDS.items())
def test_a_rule_about_the_tasks_of_its_own_role_is_kept(kind, company):
    spec = read(gang(labelled({"app": "train"}, **others(kind, labelSelector=APP))))
    assert [role.rules.company for role in spec.roles if role.rules] == [company]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_that_is_alone_can_only_mean_the_pods_of_other_jobs(kind):
    """A Deployment's replicas that keep away from each other are a job each: they were put on one node."""
    alone = pod(metadata={"name": "web", "labels": {"app": "train"}}, **others(kind, labelSelector=APP))
    assert refusal(alone) == f"spec.affinity.{kind}.{REQUIRED}[0] {NOT_KEPT}"
    single = job(pod=labelled({"app": "train"}, **others(kind, labelSelector=APP)))
    assert refusal(single).endswith(NOT_KEPT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_that_means_another_role_as_well_is_refused(kind):
    """Every role was placed by itself, so a master and a worker that keep apart were on one node."""
    both = labelled({"app": "train"}, **others(kind, labelSelector=APP))
    assert refusal(pytorchjob({"template": both}, {"replicas": 2, "template": both})).endswith(NOT_KEPT)
    pair = jobset(replicated("a", 2, template=both), replicated("b", 2, template=labelled({"app": "train"})))
    assert refusal(pair).endswith(NOT_KEPT)
    only = {"training.kubeflow.org/replica-type": "worker"}
    apart = labelled({}, **others("podAntiAffinity", labelSelector={"matchLabels": only}))
    spec = read(pytorchjob(replicas(1), {"replicas": 2, "template": apart}))
    assert [role.rules and role.rules.company for role in spec.roles] == [None, Company.APART]


def test_a_rule_that_selects_nobody_is_kept_by_everybody():
    assert read(gang(template(**others("podAntiAffinity")))).roles[0].rules is None
    assert refusal(gang(template(**others("podAffinity")))).endswith(NOT_KEPT)


@pytest.mark.parametrize("topology", [HOSTNAME, ZONE])
def test_a_spread_that_must_be_kept_is_refused_and_a_wish_is_noted(topology):
    def spread(how: str) -> dict[str, Any]:
        asked = {"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": how, "labelSelector": APP}
        return gang(labelled({"app": "train"}, topologySpreadConstraints=[asked]))

    assert refusal(spread("DoNotSchedule")) == f"spec.template.spec.topologySpreadConstraints[0] {SPREAD_NOT_KEPT}"
    noted = "spec.template.spec.topologySpreadConstraints are wishes (ScheduleAnyway) and have no effect"
    assert noted in read(spread("ScheduleAnyway")).notes


def accepted(document: dict[str, Any]) -> JobSpec | None:
    """None: it was refused, because a rule could not be kept."""
    try:
        return read(document)
    except Rejected as refused:
        if not str(refused).endswith((NOT_KEPT, SPREAD_NOT_KEPT)):
            raise
        return None


TERMS = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from([HOSTNAME, ZONE])},
    optional={
        "labelSelector": st.sampled_from([APP, {}, {"matchLabels": {"app": "b"}}, {"matchLabels": {"x": "y"}}]),
        "namespaces": st.sampled_from([[], ["other"]]),
    },
)
SPREADS = st.fixed_dictionaries({"whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])})
LABELS = st.sampled_from([{}, {"app": "train"}, {"app": "b"}])


@given(
    pods=st.lists(
        st.tuples(st.integers(1, 3), LABELS, st.sampled_from(sorted(KINDS)), st.lists(TERMS, max_size=2)),
        min_size=1,
        max_size=3,
    ),
    spreads=st.lists(SPREADS, max_size=2),
)
def test_whatever_is_asked_for_is_a_rule_of_the_planner_or_a_refusal(pods, spreads):
    """Of an accepted object every rule selects the tasks of its own role, all of them, and no others."""
    entries = []
    for number, (count, labels, kind, terms) in enumerate(pods):
        own = labelled(labels, affinity={kind: {REQUIRED: terms}}, topologySpreadConstraints=spreads)
        entries.append(replicated(f"r{number}", count, template=own))
    spec = accepted(jobset(*entries))
    if spec is None:
        return
    assert all(one["whenUnsatisfiable"] == "ScheduleAnyway" for one in spreads)
    for role, (count, labels, kind, terms) in zip(spec.roles, pods, strict=True):
        meant = [one for one in terms if "labelSelector" in one]
        assert all(one["topologyKey"] == HOSTNAME and not one.get("namespaces") for one in meant)
        for one in meant:
            wanted = one["labelSelector"].get("matchLabels", {})
            assert [name for name, other in enumerate(pods) if wanted.items() <= other[1].items()] == [
                pods.index((count, labels, kind, terms))
            ]
        company = role.rules.company if role.rules else Company.ANY
        assert company is (KINDS[kind] if meant else Company.ANY)


# -- what is said to others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_words_for_kueue_are_named_wherever_they_stand(field, name):
    on_object = pod(metadata={"name": "train", field: {name: "gold"}})
    on_template = {**gang(template()), "spec": {**gang(template())["spec"]}}
    on_template["spec"]["template"] = {"metadata": {field: {name: "gold"}}, **template()}
    for document, where in ((on_object, "metadata"), (on_template, "spec.template.metadata")):
        said = f"{where}.{field}: {name} 'gold' is for Kueue and has no effect: {EXPECTED[name]}"
        assert said in read(document).notes
        assert said in read_document(document, Context(workdir="/home/ann")).notes


@pytest.mark.parametrize("kind", sorted(ONLY_BY_KUBECTL))
@pytest.mark.parametrize("on_cluster", [True, False])
def test_a_kind_whose_controller_goes_on_for_ever_is_told_the_way_in_that_works(kind, on_cluster):
    with pytest.raises(Rejected) as caught:
        read_document({"apiVersion": "apps/v1", "kind": kind}, Context(workdir="/", on_cluster=on_cluster))
    assert str(caught.value) == (
        f"a {kind} (apps/v1) is not submitted: it {ONLY_BY_KUBECTL[kind]}. On a cluster write "
        "schedulerName: swell into its pod template and use kubectl apply; to run its pod once, submit a Job"
    )
