"""What a JobSet asks for, and what its pods are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.model.job import JobSpec, Role
from swell.model.numbered import Numbered

from .kubernetes import container, gpus, jobset, read, refusal, replicated, template, width

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
            jobset(replicated("a", completions=10, parallelism=2)),
            (
                "spec.replicatedJobs[0].template.spec.completions is 10 and parallelism 2: all pods of a JobSet start "
                "together; write parallelism: 10, or a batch/v1 Job, whose tasks run a few at once"
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
            jobset({**replicated("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}),
            (
                "spec.replicatedJobs[0].dependsOn lets it start after another, but all tasks of a job start together; "
                "leave it out, or submit them as jobs of their own and let one wait for the other"
            ),
        ),
        (
            jobset(replicated("a"), replicated("b"), startupPolicy={"startupPolicyOrder": "InOrder"}),
            (
                "spec.startupPolicy.startupPolicyOrder is InOrder, but all tasks of a job start together; write "
                "AnyOrder and let the command wait for the others, or submit them as jobs of their own"
            ),
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
            jobset(replicated("a"), failurePolicy={"rules": [{"action": "FailJobSet"}]}),
            "spec.failurePolicy.rules tells one failure from another, but every one counts alike here; leave it out",
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
