"""What a JobSet asks for, and what its pods are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.model.job import ExitAction, ExitRule, JobSpec, Numbered, Role
from swell.model.placement import Domain, PlacementRules

from .kubernetes import CONTEXT, container, gpus, jobset, read, refusal, replicated, template, width

LABEL = "metadata.labels['jobset.sigs.k8s.io/{}']"


def told(role: Role, name: str) -> list[int]:
    """One variable of every task of a role."""
    [found] = [one for one in role.numbered if one.name == name]
    return [found.of(task) for task in range(role.count)]


def counts(spec: JobSpec) -> list[tuple[str, int]]:
    return [(role.name, role.count) for role in spec.roles]


def from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


# -- tasks ---------------------------------------------------------------------------------------------------


def test_every_pod_of_every_job_is_a_task_of_one_gang():
    spec = read(jobset(replicated("driver"), replicated("workers", 3, completions=2, parallelism=2)))
    assert counts(spec) == [("driver", 1), ("workers", 6)]
    assert (spec.name, spec.array, width(spec)) == ("mesh", None, ("tasks", 1, 1))
    assert (spec.workdir, spec.umask, spec.retries) == ("/home/ann", 0o027, 6)


def test_an_entry_without_replicas_is_left_out():
    assert counts(read(jobset(replicated("a", 0), replicated("b", 2)))) == [("b", 2)]


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        ({}, 1),
        ({"completions": 2, "parallelism": 2}, 2),
        ({"completions": 2, "parallelism": 8, "completionMode": "Indexed"}, 2),
        ({"parallelism": 3, "completionMode": "NonIndexed"}, 3),
        ({"completions": 3, "parallelism": 3, "completionMode": "NonIndexed"}, 3),
    ],
)
def test_a_job_has_as_many_pods_as_run_at_once(job, pods):
    assert counts(read(jobset(replicated("w", 2, **job)))) == [("w", 2 * pods)]


def test_one_pod_with_gpus_is_as_wide_as_its_range():
    one = replicated("w", template=template(container(**gpus(1, 4))))
    assert width(read(jobset(one))) == ("gpus", 1, 4)


def test_the_annotations_give_the_range_of_every_pod_with_gpus():
    with_gpus = replicated("w", 2, template=template(container(**gpus(1, 1))))
    noted = {"request": "1", "limit": "2", "replicas": "3"}
    spec = read(jobset(replicated("driver"), with_gpus, annotations=noted))
    assert (width(spec), [role.resources.gpus for role in spec.roles]) == (("gpus", 1, 2), [0, 1])


def test_our_own_annotations_count_as_for_the_other_kinds():
    noted = {"swell.dev/epochs": "3", "swell.dev/priority": "5", "swell.dev/resize": "never", "swell.dev/time": "1h"}
    spec = read(jobset(replicated("w"), annotations=noted))
    assert (spec.epochs, spec.priority, spec.resize, spec.time_limit_s) == (3, 5, "never", 3600.0)


def test_the_shortest_deadline_of_its_jobs_is_the_limit():
    spec = read(jobset(replicated("a", activeDeadlineSeconds=60), replicated("b", activeDeadlineSeconds=30)))
    assert spec.time_limit_s == 30.0


# -- what the pods are told ----------------------------------------------------------------------------------


def test_pods_know_their_job_of_how_many_and_where_in_it_they_are():
    """Types in the order they are written, so the five workers are the Jobs 2 to 6 of 7."""
    heavy, worker = read(jobset(replicated("heavy", 2), replicated("worker", 5, completions=2, parallelism=2))).roles
    assert dict(heavy.env) == {
        "GLOBAL_REPLICAS": "7",
        "REPLICATED_JOB_NAME": "heavy",
        "REPLICATED_JOB_REPLICAS": "2",
        "SWELL_SHARDS": "heavy:2x1:1000,worker:5x2:1000",
    }
    assert [told(heavy, name) for name in ("JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX")] == [
        [0, 1],
        [0, 1],
        [0, 0],
    ]
    assert dict(worker.env)["REPLICATED_JOB_REPLICAS"] == "5"
    assert told(worker, "JOB_INDEX") == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert told(worker, "JOB_GLOBAL_INDEX") == [2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert told(worker, "JOB_COMPLETION_INDEX") == [0, 1] * 5


def test_the_labels_of_a_pod_can_be_had_under_any_name():
    asked = [
        from_field("MINE", LABEL.format("job-index")),
        from_field("POD", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        from_field("SET", LABEL.format("jobset-name")),
        from_field("HEAD", LABEL.format("coordinator")),
        {"name": "LOG", "value": "$(SET)-$(REPLICATED_JOB_NAME)"},
    ]
    one = replicated("w", 2, completions=2, parallelism=2, template=template(container(env=asked)))
    (role,) = read(jobset(one, coordinator={"replicatedJob": "w", "jobIndex": 1, "podIndex": 1})).roles
    assert (told(role, "MINE"), told(role, "POD")) == ([0, 0, 1, 1], [0, 1, 0, 1])
    env = dict(role.env)
    assert (env["SET"], env["HEAD"], env["LOG"]) == ("mesh", "127.0.0.1", "mesh-w")


def test_what_a_container_says_itself_wins():
    asked = [{"name": "JOB_INDEX", "value": "x"}, from_field("GLOBAL_REPLICAS", LABEL.format("job-index"))]
    (role,) = read(jobset(replicated("w", template=template(container(env=asked))))).roles
    assert dict(role.env)["JOB_INDEX"] == "x"
    assert Numbered("GLOBAL_REPLICAS") in role.numbered
    assert "JOB_INDEX" not in [one.name for one in role.numbered]


@pytest.mark.parametrize(
    "fields",
    [
        {"args": ["--rank=$(JOB_COMPLETION_INDEX)"]},
        {
            "env": [
                from_field("JOB_COMPLETION_INDEX", LABEL.format("job-index")),
                {"name": "B", "value": "$(JOB_COMPLETION_INDEX)"},
            ]
        },
    ],
)
def test_a_number_that_differs_from_task_to_task_cannot_be_written_out(fields):
    assert refusal(jobset(replicated("w", template=template(container(**fields))))) == (
        "spec.replicatedJobs[0].template.spec.template.spec.containers[0]: $(JOB_COMPLETION_INDEX) is another number "
        'for each task, so it cannot be written out beforehand; read the variable when it runs, as in [sh, -c, "train '
        '--rank=$JOB_COMPLETION_INDEX"]'
    )


def test_labels_nobody_knows_are_refused_with_those_that_are_known():
    one = container(env=[from_field("A", LABEL.format("restart-attempt"))])
    said = refusal(jobset(replicated("w", template=template(one))))
    assert "valueFrom.fieldRef can be metadata.name or metadata.namespace or metadata.labels['batch" in said
    assert "metadata.labels['jobset.sigs.k8s.io/job-global-index']" in said
    assert "coordinator" not in said


# -- policies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "job", "retries"),
    [
        ({"failurePolicy": {"maxRestarts": 3}}, {"backoffLimit": 0}, 3),
        ({"failurePolicy": {}}, {"backoffLimit": 5}, 0),
        ({"failurePolicy": {"maxRestarts": 5000, "restartStrategy": "BlockingRecreate", "rules": []}}, {}, 1000),
        ({}, {"backoffLimit": 2}, 2),
        ({}, {"backoffLimitPerIndex": 4}, 4),
        ({}, {}, 6),
    ],
)
def test_it_is_started_again_as_often_as_its_failure_policy_says(policy, job, retries):
    assert read(jobset(replicated("w", **job), **policy)).retries == retries


def test_a_suspended_set_is_held():
    suspended = read(jobset(replicated("a"), suspend=True))
    assert suspended == replace(read(jobset(replicated("a"), suspend=False)), is_held=True)


@pytest.mark.parametrize(
    "harmless",
    [
        {"successPolicy": {"operator": "All"}},
        {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["b", "a"]}},
        {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}},
        {"network": {"enableDNSHostnames": True, "subdomain": "x", "publishNotReadyAddresses": True}},
        {"coordinator": {"replicatedJob": "b"}},
        {"managedBy": "x", "ttlSecondsAfterFinished": 5, "volumeClaimPolicies": [{}]},
    ],
)
def test_what_asks_for_what_is_done_anyway_changes_nothing(harmless):
    entries = replicated("a"), replicated("b")
    assert read(jobset(*entries, **harmless)) == read(jobset(*entries))


def test_an_order_of_one_is_kept():
    assert counts(read(jobset(replicated("a"), startupPolicy={"startupPolicyOrder": "InOrder"}))) == [("a", 1)]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (jobset(replicated("a"), suspend=1), "spec.suspend must be true or false, but is a number: 1"),
        (jobset(), "spec.replicatedJobs has no replica; give at least one Job"),
        (jobset(replicated("a", 0)), "spec.replicatedJobs has no replica; give at least one Job"),
        (
            jobset(replicated("a"), replicated("a")),
            "spec.replicatedJobs has the name 'a' twice; every entry has its own",
        ),
        (
            jobset(*[replicated(f"a{n}") for n in range(65)]),
            "spec.replicatedJobs has 65 entries; at most 64: split the set",
        ),
        (
            jobset(replicated("a", 9999, completions=9999, parallelism=9999)),
            "spec.replicatedJobs stands for 99980001 pods; a job has at most 100000 tasks",
        ),
        (
            jobset(replicated("a", completions=10, parallelism=2), replicated("b")),
            (
                "spec.replicatedJobs[0].template.spec.completions is 10 and parallelism 2, beside other replicated "
                "Jobs: a few pods at once are run of a set with one of them; write parallelism: 10, or a JobSet "
                "for each"
            ),
        ),
        (
            jobset(replicated("a", parallelism=2)),
            (
                "spec.replicatedJobs[0].template.spec.parallelism is 2, but completions does not say how many there "
                "are; give both"
            ),
        ),
        (
            jobset({**replicated("b"), "dependsOn": [{"name": "a", "status": "Complete"}]}),
            (
                "spec.replicatedJobs[0].dependsOn[0] lets it start after another, but all tasks of a job start "
                "together; leave it out, or submit them as jobs of their own and let one wait for the other"
            ),
        ),
        (
            jobset({**replicated("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}),
            "dependsOn of 'b' names 'a', which is none of spec.replicatedJobs: b",
        ),
        (
            jobset(replicated("a"), successPolicy={"operator": "Any"}),
            (
                "spec.successPolicy ends the set before all its tasks have; here every task must succeed: leave it "
                "out, and let the others end by themselves"
            ),
        ),
        (
            jobset(replicated("a"), replicated("b"), successPolicy={"operator": "All", "targetReplicatedJobs": ["a"]}),
            (
                "spec.successPolicy ends the set before all its tasks have; here every task must succeed: leave it "
                "out, and let the others end by themselves"
            ),
        ),
        (
            jobset(replicated("a"), successPolicy={"operator": "All", "targetReplicatedJobs": ["c"]}),
            "spec.successPolicy.targetReplicatedJobs names 'c', which is none of spec.replicatedJobs: a",
        ),
        (
            jobset(replicated("a"), failurePolicy={"rules": [{"action": "FailJobSets"}]}),
            (
                "spec.failurePolicy.rules[0].action must be one of FailJobSet, RestartJobSet, "
                "RestartJobSetAndIgnoreMaxRestarts, but is 'FailJobSets'; did you mean FailJobSet?"
            ),
        ),
        (
            jobset(replicated("a"), failurePolicy={"rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["b"]}]}),
            "spec.failurePolicy.rules[0].targetReplicatedJobs names 'b', which is none of the replicated Jobs: a",
        ),
        (
            jobset(replicated("a"), coordinator={"replicatedJob": "b"}),
            "spec.coordinator.replicatedJob names 'b', which is none of spec.replicatedJobs: a",
        ),
        (
            jobset(replicated("a", 2), coordinator={"replicatedJob": "a", "jobIndex": 2}),
            "spec.coordinator.jobIndex is 2; it must be from 0 to 1",
        ),
        (
            jobset(replicated("a", template=template(container(), container(name="b")))),
            (
                "spec.replicatedJobs[0].template.spec.template.spec.containers has 2 containers: each would count as a "
                "rank, and WORLD_SIZE would be wrong; keep the one that trains"
            ),
        ),
        (
            jobset(replicated("a"), annotations={"replicas": "2"}),
            (
                "metadata.annotations: replicas is 2, but the manifest has 1 pod; make them the same, or leave the "
                "annotation out"
            ),
        ),
        (jobset(replicated("a"), networks={}), "spec has no field 'networks'; did you mean 'network'? (used here: rep"),
        (jobset(replicated("a"), network={"dns": 1}), "spec.network has no field 'dns'; (used here: none)"),
    ],
)
def test_what_cannot_be_kept_is_refused(document, said):
    assert refusal(document).startswith(said)


def test_a_few_pods_at_once_are_an_array_that_begins_with_the_first_of_each_job():
    """Two of each Job at once: six tasks of two Jobs, of which four run, the first two of each Job first."""
    spec = read(jobset(replicated("w", 2, completions=3, parallelism=2)))
    assert spec.array is not None
    assert (str(spec.array.indices), spec.array.at_once, width(spec)) == ("0-5", 4, ("tasks", 1, 4))
    (role,) = spec.roles
    numbers = {one.name: [one.of(task) for task in range(6)] for one in role.numbered}
    assert numbers == {
        "JOB_COMPLETION_INDEX": [0, 0, 1, 1, 2, 2],
        "JOB_INDEX": [0, 1, 0, 1, 0, 1],
        "JOB_GLOBAL_INDEX": [0, 1, 0, 1, 0, 1],
    }


def test_an_order_of_starting_is_said_to_be_left_to_the_commands():
    waits = {**replicated("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}
    in_order = {"startupPolicyOrder": "InOrder"}
    assert read(jobset(replicated("a"), waits, startupPolicy=in_order)).notes[-2:] == (
        (
            "spec.startupPolicy.startupPolicyOrder is InOrder, but all tasks start together here: let the commands "
            "wait until they reach the others"
        ),
        "'b' depends on a, but all tasks start together here: let its command wait until it reaches the others",
    )


def of_code(code, action):
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}


def test_rules_about_failures_are_kept_for_the_tasks_of_the_jobs_that_they_name():
    """The driver's failure ends the set, 42 of a worker too, and 3 of a worker does not count."""
    rules = [
        {"name": "driver", "action": "FailJobSet", "targetReplicatedJobs": ["driver"]},
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["DeadlineExceeded"]},
    ]
    ignores, fails = of_code(3, "Ignore")["rules"], of_code(42, "FailJob")["rules"]
    workers = replicated("workers", 2, podFailurePolicy={"rules": ignores + fails})
    spec = read(jobset(replicated("driver"), workers, failurePolicy={"maxRestarts": 2, "rules": rules}))
    assert spec.exit_rules == (
        ExitRule(ExitAction.IGNORE, (3,), ranks=(1, 2)),
        ExitRule(ExitAction.FAIL, (), ranks=(0, 0)),
        ExitRule(ExitAction.FAIL, (42,), ranks=(1, 2)),
    )
    assert spec.notes[-1] == (
        "spec.failurePolicy.rules[2] has no effect: DeadlineExceeded ends a job here whatever is said of it"
    )


def test_without_a_failure_policy_of_the_set_those_of_its_jobs_count():
    spec = read(jobset(replicated("a"), replicated("b", podFailurePolicy=of_code(42, "FailJob"))))
    assert spec.exit_rules == (ExitRule(ExitAction.FAIL, (42,), ranks=(1, 1)),)


# -- where JobSet itself would choose the nodes ------------------------------------------------------------------------

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
CLUSTER = replace(CONTEXT, on_cluster=True)


def exclusive(place: str) -> dict[str, Any]:
    """A set with the annotation at one of the places where JobSet reads it."""
    document = jobset(replicated("w", 2, completions=2, parallelism=2))
    job = document["spec"]["replicatedJobs"][0]["template"]
    one = {"set": document, "Job": job, "pod": job["spec"]["template"]}[place]
    one["metadata"] = {**one.get("metadata", {}), "annotations": {EXCLUSIVE: "zone"}}
    return document


@pytest.mark.parametrize("place", ["set", "Job", "pod"])
def test_each_job_of_a_set_may_ask_for_the_nodes_of_one_domain(place: str) -> None:
    [role] = read(exclusive(place), CLUSTER).roles
    assert (role.count, role.rules) == (4, PlacementRules(domain=Domain("zone", 2)))


def test_what_is_said_of_the_set_holds_for_all_its_jobs_and_what_a_job_says_for_that() -> None:
    document = jobset(replicated("driver"), replicated("w", 2, completions=3, parallelism=3))
    document["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"annotations": {EXCLUSIVE: "zone"}}
    assert [role.rules for role in read(document, CLUSTER).roles] == [None, PlacementRules(domain=Domain("zone", 3))]
    document["metadata"]["annotations"] = {EXCLUSIVE: "zone"}
    assert [role.rules and role.rules.domain for role in read(document, CLUSTER).roles] == [
        Domain("zone", 1),
        Domain("zone", 3),
    ]
    document["metadata"]["annotations"] = {EXCLUSIVE: "rack"}
    where = "spec.replicatedJobs[1].template.metadata.annotations"
    assert refusal(document, CLUSTER) == f"{where}: {EXCLUSIVE} is zone, and above it is rack; give one"


def test_pods_of_such_a_set_all_run_at_once() -> None:
    document = jobset(replicated("w", completions=4, parallelism=2), annotations={EXCLUSIVE: "zone"})
    assert refusal(document, CLUSTER) == (
        f"{EXCLUSIVE} is for Jobs whose pods all run at once and keep their size; write as many completions as "
        "parallelism, and no range"
    )


@pytest.mark.parametrize("key", ["", "a b", "x/y/z"])
def test_the_domains_are_named_by_a_label(key: str) -> None:
    document = jobset(replicated("w"), annotations={EXCLUSIVE: key})
    assert refusal(document, CLUSTER).startswith(f"metadata.annotations: {EXCLUSIVE}")


def test_a_set_whose_nodes_are_chosen_by_labels_that_jobset_adds_is_refused() -> None:
    name = "alpha.jobset.sigs.k8s.io/node-selector"
    document = jobset(replicated("w"), annotations={name: "true"})
    assert refusal(document, CLUSTER).startswith(f"metadata.annotations: {name} cannot be kept: JobSet then chooses")


@pytest.mark.parametrize("place", ["set", "Job", "pod"])
def test_on_one_machine_all_tasks_are_in_one_place_anyway(place: str) -> None:
    assert counts(read(exclusive(place))) == [("w", 4)]
