"""Volumes say where their pods may go: bound ones by themselves, others by their class."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.watch.volumes import Volumes, parse_class, parse_volume, with_choices, with_volumes
from swell.errors import Rejected
from swell.manifests import Context, read_document
from swell.model.placement import Operator, PlacementRules, Requirement, Term, objection

from .apiserver import ApiServer
from .conftest import access_to

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CONTAINER = {"name": "main", "image": "i"}


def within(key: str, *values: str) -> Term:
    return Term((Requirement(key, Operator.IN, values),))


def volume(*terms: dict[str, Any]) -> dict[str, Any]:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return {"metadata": {"name": "disk-1"}, "spec": affinity}


def expressions(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def late(*zones: str, mode: str = "WaitForFirstConsumer") -> dict[str, Any]:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else []
    return {"metadata": {"name": "fast"}, "volumeBindingMode": mode, "allowedTopologies": topologies}


@pytest.mark.parametrize(
    ("document", "choice"),
    [
        (volume(), ()),
        ({"metadata": {"name": "nfs"}, "spec": {"nodeAffinity": {}}}, ()),
        (volume(expressions(ZONE, "In", "a", "b")), (within(ZONE, "a", "b"),)),
        (
            volume(expressions(HOST, "In", "n1"), expressions(HOST, "In", "n2")),
            (within(HOST, "n1"), within(HOST, "n2")),
        ),
        (volume(expressions("cores", "Gt", "8")), (Term((Requirement("cores", Operator.GT, ("8",)),)),)),
        (
            volume({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
            (Term((), (Requirement("metadata.name", Operator.IN, ("n1",)),)),),
        ),
    ],
)
def test_a_bound_volume_says_which_nodes_reach_it(document, choice):
    assert parse_volume(document) == choice


@pytest.mark.parametrize(
    ("document", "choice"),
    [
        (late(), ()),
        (late("a", "b"), (within(ZONE, "a", "b"),)),
        (late("a", mode="Immediate"), ()),
    ],
)
def test_a_class_that_waits_for_the_first_consumer_says_where_it_makes_volumes(document, choice):
    assert parse_class(document) == choice


A, B, SSD = within(ZONE, "a"), within(ZONE, "b"), within("disk", "ssd")


@pytest.mark.parametrize(
    ("terms", "choices", "found"),
    [
        ((), (), None),
        ((), ((A,),), (A,)),
        ((SSD,), (), (SSD,)),
        ((SSD,), ((A, B),), (Term((*SSD.labels, *A.labels)), Term((*SSD.labels, *B.labels)))),
        ((A,), ((A,),), (A,)),
        ((), ((A,), (SSD,)), (Term((*A.labels, *SSD.labels)),)),
        ((Term(),), ((A,),), (Term(),)),
    ],
)
def test_all_volumes_and_the_pods_own_affinity_must_hold(terms, choices, found):
    rules = with_choices(PlacementRules(terms=terms) if terms else None, choices)
    assert (None if rules is None else rules.terms) == found


def test_terms_beyond_what_is_held_against_every_node_are_refused():
    many = tuple(within("n", str(number)) for number in range(20))
    with pytest.raises(Rejected, match="together are 400 terms; at most 200"):
        with_choices(PlacementRules(terms=many), [tuple(within("m", str(number)) for number in range(20))])


VALUES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)
CHOICES = st.lists(st.tuples(st.sampled_from((ZONE, HOST)), VALUES), min_size=1, max_size=3)


@given(st.lists(CHOICES, max_size=3), CHOICES | st.none(), st.sampled_from("abc"), st.sampled_from("abc"))
def test_a_node_is_allowed_exactly_where_the_pod_and_each_of_its_volumes_allow_it(choices, own, zone, host):
    labels = {ZONE: zone, HOST: host}

    def holds(terms: list[tuple[str, list[str]]]) -> bool:
        return any(labels[key] in values for key, values in terms)

    made = [tuple(within(key, *values) for key, values in terms) for terms in choices]
    rules = None if own is None else PlacementRules(terms=tuple(within(key, *values) for key, values in own))
    found = with_choices(rules, made) or PlacementRules()
    may = all(map(holds, choices)) and (own is None or holds(own))
    assert (objection(found, labels, ()) is None) is may


# -- asked of the API server -------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path / "token")
    yield made
    made.close()


def test_a_pods_claims_are_followed_to_what_they_are_bound_to(server: ApiServer) -> None:
    port = ApiClient(access_to(server), answer_s=5.0)
    add = server.storage.create
    add("persistentvolumes", ("", "disk-1"), volume(expressions(ZONE, "In", "a")))
    add("storageclasses", ("", "fast"), late("b", "c"))
    add("persistentvolumeclaims", ("ml", "bound"), {"spec": {"volumeName": "disk-1", "storageClassName": "fast"}})
    add("persistentvolumeclaims", ("ml", "late"), {"spec": {"storageClassName": "fast"}})
    add("persistentvolumeclaims", ("ml", "plain"), {"spec": {}})
    claims = ("bound", "late", "plain", "missing")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    spec = {"containers": [CONTAINER], "volumes": [*volumes, {"name": "own", "ephemeral": {}}, {"name": "tmp"}]}
    asked = Volumes(port)
    assert asked.choices(spec, "train-0", "ml") == ((within(ZONE, "a"),), (within(ZONE, "b", "c"),))
    assert asked.choices({"containers": [CONTAINER]}, "train-0", "ml") == ()
    port.close()


def test_each_role_has_the_rules_of_its_own_volumes() -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    entry = {"parallelism": 1, "completions": 1, "template": template}
    jobs = [{"name": name, "template": {"spec": entry}} for name in ("data", "work")]
    document = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
    spec = read_document({**document, "spec": {"replicatedJobs": jobs}}, Context(workdir="/", on_cluster=True))
    assert with_volumes(spec, [(), ()]) == spec
    found = with_volumes(spec, [((A,),), ()])
    assert [role.rules and role.rules.terms for role in found.roles] == [(A,), None]


ODD = [None, 5, "text", [5], {"key": "zone"}, {"key": [], "operator": "In"}, {"key": "zone", "operator": "Odd"}]
ODD += [{"key": "cores", "operator": "Gt"}, {"key": "zone", "operator": "In", "values": [5]}]


class Answers:
    """An API server that has one claim, one volume and one class, however they are written."""

    def __init__(self, claim: Any, other: Any) -> None:
        self._found = {"persistentvolumeclaims": claim}
        self._other = other

    def get(self, resource: Any, *_: str) -> Any:
        return self._found.get(resource.plural, self._other)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("claim", [{"volumeName": "v"}, {"storageClassName": "c"}])
def test_a_volume_that_cannot_be_read_refuses_its_pod_in_a_sentence_or_says_nothing(claim: Any, odd: Any) -> None:
    """A requirement without a value, or of another type, would have stopped every plan."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [odd]}]}
    other = {"spec": {"nodeAffinity": {"required": terms}}, "volumeBindingMode": "WaitForFirstConsumer"}
    other["allowedTopologies"] = [{"matchLabelExpressions": [odd]}]
    port: Any = Answers({"spec": claim}, other)
    pod = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    with contextlib.suppress(Rejected):
        [[term]] = Volumes(port).choices(pod, "", "ml")
        assert not any(one.holds({"zone": "a", "cores": "8"}) for one in term.labels)


@pytest.mark.parametrize("claim", [None, 5, {"spec": 5}, {"spec": {"volumeName": "v"}}])
def test_a_claim_that_cannot_be_read_refuses_its_pod_in_a_sentence(claim: Any) -> None:
    port: Any = Answers(claim, None)
    with pytest.raises(Rejected, match="where the volume of claim 'c' is cannot be read"):
        Volumes(port).choices({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "", "ml")
