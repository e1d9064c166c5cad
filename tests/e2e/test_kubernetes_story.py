"""The demo's story with pods on real kubelets: told with `swell` and kubectl, and every step looked at.

Two nodes with four GPUs each; those of the second are held by somebody's pod that knows nothing of Swell, so that the
jobs have to share the first. Nothing here waits for a time: the jobs train until the test says enough.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pytest

from cluster.api import condition
from cluster.jobs import PODS, PYTORCHJOBS, SERVICES, jobset, pod, pytorchjob
from cluster.jobs import job as indexed_job
from e2e.onkubernetes import GPUS, PATIENCE_S, Document, Stage, elastic, staged
from e2e.training import EPOCH, until_trained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

SECRETS = "/api/v1/namespaces/default/secrets"
BUSYBOX = "swell.test/busybox:1"
#: Rank 0 says hello to whoever comes, rank 1 asks until it hears it.
SERVE = "echo hello from $HOSTNAME | nc -l -p 23456"
ASK = "until nc {address} 23456 </dev/null 2>/dev/null | grep hello; do sleep 0.2; done"
MEET = f"if [ {{rank}} = 0 ]; then {SERVE}; else {ASK}; fi"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("story")) as made:
        yield made


@dataclass(frozen=True)
class Played:
    anna: int
    ben: int
    urgent: int
    nodes: dict[str, tuple[int, int]]  #: GPUs that are free, and all, before anything of ours ran
    early: str  #: ben's log while it ran in a later attempt
    reason: str  #: why urgent did not run yet, if it did not


@pytest.fixture(scope="module")
def played(stage: Stage) -> Played:
    """anna and ben train; anna ends, and ben swells; an urgent job takes two GPUs, and gives them back."""
    stage.cluster.api.create(PODS, holder())
    stage.cluster.api.until(PODS, lambda pods: pods["holder"]["status"]["phase"] == "Running")
    nodes = free_gpus(stage)
    anna, ben = stage.submit(elastic("anna", stage), elastic("ben", stage))
    for job in (anna, ben):
        stage.server.until_true(job, has_trained, patience_s=PATIENCE_S)
    stage.say_enough("anna")
    stage.until(anna, "succeeded")
    until_trained(stage.server, ben, width=GPUS, patience_s=PATIENCE_S)
    early = stage.said("logs", str(ben)).stdout
    [urgent] = stage.submit(urgent_one(stage))
    reason = stage.said("why", str(urgent)).stdout
    stage.until(urgent, "running")
    until_trained(stage.server, ben, width=2, patience_s=PATIENCE_S)
    stage.say_enough("urgent")
    stage.until(urgent, "succeeded")
    until_trained(stage.server, ben, width=GPUS, patience_s=PATIENCE_S)
    stage.say_enough("ben")
    stage.until(ben, "succeeded")
    stage.cluster.api.delete(f"{PODS}/holder")
    return Played(anna, ben, urgent, nodes, early, reason)


# -- elastic jobs --------------------------------------------------------------------------------------------


def test_gpus_that_others_pods_hold_are_taken(played: Played) -> None:
    assert played.nodes == {"real-1": (GPUS, GPUS), "real-2": (0, GPUS)}


def test_a_job_swells_into_what_another_left_and_shrinks_for_an_urgent_one(stage: Stage, played: Played) -> None:
    ben = shown(stage, played.ben)
    widths = [attempt["width"] for attempt in ben["attempts"]]

    assert widths[-3:] == [GPUS, 2, GPUS]
    assert {attempt["outcome"] for attempt in ben["attempts"][:-1]} == {"yielded"}
    assert (ben["resizes"], ben["preemptions"], ben["failures"]) == (len(widths) - 1, 0, 0)
    assert re.search(r"NotYetPlanned|WaitingForRoom|Starting|is running", played.reason)


def test_no_epoch_was_lost_and_none_was_done_twice(stage: Stage, played: Played) -> None:
    for job in (played.anna, played.ben):
        ledger = stage.ledger(job)
        assert [epoch for epoch, _, _ in ledger] == list(range(1, len(ledger) + 1))
        assert shown(stage, job)["lost_gpu_seconds"] == 0


def test_every_epoch_ran_on_as_many_gpus_as_the_job_was_wide(stage: Stage, played: Played) -> None:
    ledger = stage.ledger(played.ben)
    attempts = [attempt["width"] for attempt in shown(stage, played.ben)["attempts"]]

    assert {(width, gpus) for _, width, gpus in ledger} <= {(width, width) for width in range(1, GPUS + 1)}
    assert [width for width, _ in groupby(width for _, width, _ in ledger)] == [width for width, _ in groupby(attempts)]


def test_the_objects_say_that_they_have_succeeded(stage: Stage, played: Played) -> None:
    found = json.loads(stage.kubectl("get", "pytorchjobs", "-o", "json"))["items"]
    ended = {one["metadata"]["name"]: condition(one, "Succeeded") for one in found}
    assert ended == {"anna": "True", "ben": "True", "urgent": "True"}


def test_a_container_that_its_kubelet_starts_again_goes_on_from_its_last_checkpoint(stage: Stage) -> None:
    [job] = stage.submit(elastic("clumsy", stage, crash_at=3))
    stage.server.until_true(job, lambda found: (found["progress"]["epochs_done"] or 0) > 3, patience_s=PATIENCE_S)
    stage.say_enough("clumsy")
    stage.until(job, "succeeded")

    epochs = [epoch for epoch, _, _ in stage.ledger(job)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert epochs_in(stage.said("logs", str(job)).stdout) == epochs
    assert (stage.share / str(job) / "crashed").exists()


def test_what_a_job_did_while_the_server_was_away_counts_also_when_it_has_ended_meanwhile(stage: Stage) -> None:
    [job] = stage.submit(elastic("unheard", stage))
    stage.server.until_true(job, has_trained, patience_s=PATIENCE_S)
    stage.server.kill()
    heard = len(stage.ledger(job))
    while len(stage.ledger(job)) < heard + 2:
        time.sleep(0.1)
    stage.say_enough("unheard")
    stage.cluster.api.until(PYTORCHJOBS, lambda found: condition(found["unheard"], "Succeeded") == "True")
    stage.server.up()
    ended = stage.until(job, "succeeded")

    assert (ended["attempts"], ended["progress"]["epochs_done"]) == (1, len(stage.ledger(job)))


def test_an_urgent_job_stops_a_rigid_one_which_goes_on_from_its_checkpoint(stage: Stage) -> None:
    """Both want all GPUs of one node, so nobody can shrink for the other."""
    [low] = stage.submit(rigid("low", stage))
    stage.server.until_true(low, has_trained, patience_s=PATIENCE_S)
    [high] = stage.submit(rigid("high", stage, **{"swell.dev/priority": "10"}))
    reason = stage.said("why", str(high)).stdout
    stage.server.until_true(high, has_trained, patience_s=PATIENCE_S)
    stage.until(low, "queued")
    why = stage.said("why", str(low)).stdout
    stage.say_enough("high")
    stage.until(high, "succeeded")
    until_trained(stage.server, low, width=GPUS, patience_s=PATIENCE_S)
    stage.say_enough("low")
    stage.until(low, "succeeded")

    stopped, served = shown(stage, low), shown(stage, high)
    assert [attempt["outcome"] for attempt in stopped["attempts"]] == ["yielded", "succeeded"]
    assert (stopped["preemptions"], stopped["resizes"], stopped["lost_gpu_seconds"]) == (1, 0, 0)
    assert [attempt["outcome"] for attempt in served["attempts"]] == ["succeeded"]
    epochs = [epoch for epoch, _, _ in stage.ledger(low)]
    assert epochs == list(range(1, len(epochs) + 1))
    [asked] = [event["detail"] for event in stopped["events"] if event["kind"] == "AskedToYield"]
    assert (asked["width"], asked["when"], asked["cause"]) == (0, "at-checkpoint", f"preempted by job {high}")
    assert re.match(rf"job {low} \(low\) is queued: WaitingForRoom\n.*; the rest is used by job {high};", why), why
    assert why.endswith(f"\n  note: attempt 1 was asked to free its resources: preempted by job {high}\n"), why
    assert re.search(rf"the rest is used by job {low}\b|NotYetPlanned|Starting|is running", reason), reason


def test_two_pytorchjobs_with_shares_train_on_one_gpu(stage: Stage) -> None:
    jobs = stage.submit(*(sharing(name, stage) for name in ("left-half", "right-half")))
    for job in jobs:
        stage.server.until_true(job, has_trained, patience_s=PATIENCE_S)
    states = [shown(stage, job)["state"] for job in jobs]
    gpus = [gpu for node in stage.said("nodes", "-o", "json").json for gpu in node["gpus"] if gpu["shares"]]
    for name, job in zip(("left-half", "right-half"), jobs, strict=True):
        stage.say_enough(name)
        stage.until(job, "succeeded")

    assert states == ["running", "running"]
    assert [[(share["job"], share["memory_mib"]) for share in gpu["shares"]] for gpu in gpus] == [
        [(job, 6144) for job in jobs]
    ]
    assert {gpus for job in jobs for _, _, gpus in stage.ledger(job)} == {1}
    stage.cluster.api.until(PODS, lambda pods: not [name for name in pods if name.startswith("swell-gpu-")])


# -- logs ----------------------------------------------------------------------------------------------------


def test_the_log_of_a_job_that_runs_has_its_earlier_attempts(played: Played) -> None:
    epochs = epochs_in(played.early)
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > 1


def test_the_logs_of_all_attempts_are_there_after_the_pods_are_deleted(stage: Stage, played: Played) -> None:
    stage.kubectl("delete", "pytorchjob", "ben")
    stage.cluster.api.until(PODS, lambda pods: not any(name.startswith("ben-") for name in pods))

    log = stage.said("logs", str(played.ben)).stdout

    assert epochs_in(log) == [epoch for epoch, _, _ in stage.ledger(played.ben)]


# -- gangs and arrays ----------------------------------------------------------------------------------------


def test_the_ranks_of_a_jobset_reach_each_other_by_name(stage: Stage) -> None:
    meet = MEET.format(rank="$JOB_COMPLETION_INDEX", address="pair-workers-0-0.pair")
    [job] = stage.submit(jobset("pair", meet, count=2))
    stage.until(job, "succeeded")

    assert stage.said("logs", "--rank", "1", str(job)).stdout == "hello from pair-workers-0-0\n"


def test_the_ranks_of_a_pytorchjob_reach_their_master_by_name_from_both_nodes(stage: Stage) -> None:
    """Two GPUs for each of three: no node has so many."""
    serve = f"for _ in 1 2; do {SERVE}; done"
    ask = f"{ASK.format(address='$MASTER_ADDR')}; echo rank $RANK of $WORLD_SIZE"
    [job] = stage.submit(pytorchjob("trio", serve, ask, workers=2, gpus=2))
    stage.until(job, "succeeded")

    logs = [stage.said("logs", "--rank", rank, str(job)).stdout for rank in "12"]
    assert logs == [f"hello from trio-master-0\nrank {rank} of 3\n" for rank in (1, 2)]
    [attempt] = shown(stage, job)["attempts"]
    assert {place["node"] for place in attempt["placements"]} == {"real-1", "real-2"}


def test_the_ranks_of_a_native_gang_meet_at_their_master_and_leave_nothing(stage: Stage) -> None:
    meet = MEET.format(rank="$RANK", address="$MASTER_ADDR") + "; echo rank $RANK of $WORLD_SIZE"
    job = stage.server.start("--image", BUSYBOX, "--tasks", "2", "--name", "meeting", "--", "sh", "-c", meet)
    stage.until(job, "succeeded")
    logs = [stage.said("logs", "--rank", rank, str(job)).stdout for rank in "01"]
    stage.said("delete", str(job))

    assert logs == ["rank 0 of 2\n", f"hello from meeting-{job}-0\nrank 1 of 2\n"]
    for path in (PODS, SERVICES, SECRETS):
        stage.cluster.api.until(path, lambda found: not [name for name in found if is_of(name, job)])


def test_the_tasks_of_an_array_each_have_their_number_and_their_log(stage: Stage) -> None:
    words = ("--image", BUSYBOX, "--array", "0-3", "--cpus", "0.1", "--name", "cases")
    job = stage.server.start(*words, "--", "sh", "-c", "echo case $JOB_COMPLETION_INDEX")
    stage.until(job, "succeeded")

    logs = [stage.said("logs", "--rank", rank, str(job)).stdout for rank in "0123"]
    assert logs == [f"case {number}\n" for number in range(4)]


def test_a_pod_that_kubectl_left_for_swell_is_a_job(stage: Stage) -> None:
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(pod("left", "echo here", schedulerName="swell")))
    stage.cluster.api.until(PODS, lambda pods: pods["left"]["status"]["phase"] == "Succeeded")

    everybody = stage.said("ps", "-a", "--all-users", "-o", "json").json
    [job] = [one["id"] for one in everybody if (one["name"], one["user"]) == ("left", "default")]
    stage.until(job, "succeeded")
    assert stage.said("logs", str(job)).stdout == "here\n"


def test_two_jobs_share_a_gpu(stage: Stage) -> None:
    words = ("--image", BUSYBOX, "--cpus", "0.1", "--grace", "1s", "--gpu-memory", "6GiB")
    jobs = [stage.server.start(*words, "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; sleep 1000") for _ in range(2)]
    seen = [stage.server.until_output(job, b"\n", patience_s=PATIENCE_S).decode().strip() for job in jobs]
    gpus = [gpu for node in stage.said("nodes", "-o", "json").json for gpu in node["gpus"] if gpu["shares"]]
    stage.said("cancel", *map(str, jobs))

    assert seen[0].startswith("GPU-real-")
    assert seen[0] == seen[1]
    assert [[share["job"] for share in gpu["shares"]] for gpu in gpus] == [jobs]
    stage.cluster.api.until(PODS, lambda pods: not [name for name in pods if name.startswith("swell-gpu-")])


# -- what goes wrong -----------------------------------------------------------------------------------------


HUNGRY = "exec awk 'BEGIN { for (all = 1; ; ) all = all all }'"


@pytest.mark.parametrize(
    "document",
    [
        pod("hungry", HUNGRY),
        indexed_job("hungry-job", HUNGRY, count=1),
        jobset("hungry-set", HUNGRY, count=1),
        pytorchjob("hungry-torch", HUNGRY, "exec sleep 600", workers=1),
    ],
    ids=lambda document: document["kind"],
)
def test_a_task_over_its_memory_limit_is_said_to_be(stage: Stage, document: Document) -> None:
    [job] = stage.submit(document)
    stage.until(job, "failed")

    assert stage.said("why", str(job)).stdout == (
        f"job {job} ({document['metadata']['name']}) failed: OutOfMemory\n"
        "  task 0 was killed because it needed more memory than its limit of 64 MiB\n"
        f"  next: give it more memory (resources.limits.memory), or see what it did: swell logs --rank 0 {job}\n"
    )


def test_an_image_that_cannot_be_had_is_said_in_the_kubelets_words(stage: Stage) -> None:
    [job] = stage.submit(pod("nowhere", "true", image="missing"))
    stage.until(job, "failed")

    assert stage.said("why", str(job)).stdout == (
        f"job {job} (nowhere) failed: ImageUnavailable\n"
        "  the image of task 0 cannot be used: ErrImageNeverPull: Container image "
        '"swell.test/missing:1" is not present with pull policy of Never\n'
        "  next: fix the image name or the pull credentials, and submit it again\n"
    )


def test_a_pod_that_waits_for_a_secret_that_is_not_there_says_so_in_the_kubelets_words(stage: Stage) -> None:
    document = pod("keyless", "true")
    document["spec"]["volumes"] = [{"name": "key", "secret": {"secretName": "nope"}}]
    document["spec"]["containers"][0]["volumeMounts"] = [{"name": "key", "mountPath": "/key"}]
    [job] = stage.submit(document)
    stage.server.until_true(job, lambda found: "FailedMount" in str(found["reason"]), patience_s=PATIENCE_S)
    why = stage.said("why", str(job)).stdout
    stage.said("cancel", str(job))

    assert why.startswith(f"job {job} (keyless) is starting: Starting\n"), why
    assert 'does not start: FailedMount: MountVolume.SetUp failed for volume "key" : secret "nope" not found' in why


@pytest.mark.parametrize(
    ("name", "outcome", "problem"),
    [
        ("evicted", "evicted", "at somebody's request, as kubectl drain does"),
        ("deleted", "pod-lost", "somebody has deleted its pod"),
    ],
)
def test_a_pod_that_is_taken_away_comes_back(stage: Stage, name: str, outcome: str, problem: str) -> None:
    [job] = stage.submit(pod(name, "sleep 1000"))
    stage.until(job, "running")
    take_away(stage, name)

    stage.server.until_true(job, lambda found: found["state"] == "running" and found["attempts"] == 2)
    events = stage.said("events", "-o", "json", str(job)).json
    stage.said("cancel", str(job))

    [retrying] = [event["detail"] for event in events if event["kind"] == "Retrying"]
    assert (retrying["outcome"], retrying["problem"]) == (outcome, problem)


def test_a_pod_that_keeps_ending_is_said_to_although_it_runs(stage: Stage) -> None:
    document = pod("loops", "exit 3")
    document["spec"]["restartPolicy"] = "OnFailure"
    [job] = stage.submit(document)
    stage.server.until_true(job, lambda found: (found["reason"] or {}).get("code") == "TaskTrouble")
    why = stage.said("why", str(job)).stdout
    stage.said("cancel", str(job))

    loops = r"pod loops keeps ending: begun again (once|\d+ times), the last time after exit code 3"
    assert re.fullmatch(
        rf"job {job} \(loops\) is running: TaskTrouble\n  it is running, but not completely: {loops}\n"
        rf"  next: see its output \(swell logs {job}\), fix that and submit it again, or wait\n",
        why,
    ), why


def test_a_job_that_is_suspended_with_kubectl_is_held_until_it_is_released(stage: Stage) -> None:
    [job] = stage.submit(elastic("paused", stage))
    stage.server.until_true(job, has_trained, patience_s=PATIENCE_S)
    patch = json.dumps({"spec": {"runPolicy": {"suspend": True}}})
    stage.kubectl("patch", "pytorchjob", "paused", "--type", "merge", "-p", patch)
    stage.until(job, "held")
    why = stage.said("why", str(job)).stdout
    release_and_end(stage, job, "paused")

    assert why == (
        f"job {job} (paused) is held: Held\n"
        "  its PyTorchJob default/paused was suspended with kubectl\n"
        f"  next: swell release {job}\n"
    )


def test_a_job_that_is_held_stops_at_its_checkpoint_and_goes_on_there_when_it_is_released(stage: Stage) -> None:
    [job] = stage.submit(elastic("rested", stage))
    stage.server.until_true(job, has_trained, patience_s=PATIENCE_S)
    stage.said("hold", str(job))
    stage.until(job, "held")
    suspended = stage.kubectl("get", "pytorchjob", "rested", "-o", "jsonpath={.spec.runPolicy.suspend}")
    why = stage.said("why", str(job)).stdout
    release_and_end(stage, job, "rested")

    assert suspended == "true"
    assert why.startswith(f"job {job} (rested) is held: Held\n")
    assert why.endswith(f" put it on hold\n  next: swell release {job}\n")
    epochs = [epoch for epoch, _, _ in stage.ledger(job)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert shown(stage, job)["lost_gpu_seconds"] == 0


def test_a_command_runs_beside_a_job_in_its_pod(stage: Stage) -> None:
    [job] = stage.submit(pod("entered", "sleep 1000"))
    stage.until(job, "running")

    variables = dict(line.split("=", 1) for line in stage.said("exec", str(job), "--", "env").stdout.splitlines())
    code = stage.server.swell("exec", str(job), "--", "sh", "-c", "exit 7").code
    stage.said("cancel", str(job))

    told = {"SWELL_JOB_ID": str(job), "SWELL_JOB_NAME": "entered", "RANK": "0", "WORLD_SIZE": "1"}
    assert {name: variables.get(name) for name in told} == told
    assert code == 7


# -- pieces --------------------------------------------------------------------------------------------------


def holder() -> Document:
    """Somebody's pod, placed by Kubernetes' own scheduler."""
    return pod("holder", "sleep 10000", gpus=GPUS, on={"kubernetes.io/hostname": "real-2"})


def urgent_one(stage: Stage) -> Document:
    """Exactly two GPUs, until it is enough."""
    return with_gpus(elastic("urgent", stage, **{"swell.dev/priority": "10"}), 2)


def rigid(name: str, stage: Stage, **annotations: str) -> Document:
    """All GPUs of the first node, until it is enough."""
    document = with_gpus(elastic(name, stage, **annotations), GPUS)
    document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"] = {
        "kubernetes.io/hostname": "real-1"
    }
    return document


def sharing(name: str, stage: Stage) -> Document:
    """A part of one GPU, until it is enough."""
    return with_gpus(elastic(name, stage, **{"swell.dev/gpu-memory": "6GiB"}), 1)


def with_gpus(document: Document, gpus: int) -> Document:
    container = document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    for part in container["resources"].values():
        part["nvidia.com/gpu"] = gpus
    return document


def take_away(stage: Stage, name: str) -> None:
    if name == "evicted":
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        stage.kubectl("create", "--raw", f"{PODS}/{name}/eviction", "-f", "-", stdin=json.dumps(body))
    else:
        stage.kubectl("delete", "pod", name, "--wait=false")


def free_gpus(stage: Stage) -> dict[str, tuple[int, int]]:
    nodes = stage.said("nodes", "-o", "json").json
    free = {node["name"]: [gpu for gpu in node["gpus"] if not gpu["outsiders_mib"]] for node in nodes}
    return {node["name"]: (len(free[node["name"]]), len(node["gpus"])) for node in nodes}


def release_and_end(stage: Stage, job: int, name: str) -> None:
    """It trains on, and ends well."""
    done = shown(stage, job)["progress"]["epochs_done"]
    stage.said("release", str(job))
    stage.server.until_true(job, lambda found: found["progress"]["epochs_done"] > done, patience_s=PATIENCE_S)
    stage.say_enough(name)
    stage.until(job, "succeeded")


def has_trained(document: Document) -> bool:
    return bool(document["progress"]["epochs_done"])


def shown(stage: Stage, job: int) -> Document:
    document: Document = stage.said("show", "-o", "json", str(job)).json
    return document


def epochs_in(log: str) -> list[int]:
    return [int(epoch) for epoch, _ in EPOCH.findall(log)]


def is_of(name: str, job: int) -> bool:
    return bool(re.search(rf"-{job}(-\d+)?$", name))
