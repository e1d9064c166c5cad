"""A job that is written in another notation says the same there, or the writer says what it could not say."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.client.needs import render_job
from swell.errors import Rejected
from swell.manifests import Context, read_document, read_manifests
from swell.manifests.writers import TARGETS, Rendering, render
from swell.manifests.writers.native import native_document
from swell.manifests.writers.variables import (
    OF_EPOCHS,
    OF_EVERY_TASK,
    OF_GANG,
    OF_GPU_MEMORY,
    OF_MPI,
    OF_RANK,
    OF_RANKS,
    OF_SWELL,
    told_variables,
)
from swell.model.job import JobSpec
from swell.model.task_environment import Ranks, ranks_of

from .kubernetes import container, gpus, job, jobset, pod, pytorchjob, replicas, replicated

ENVIRONMENT = Path(__file__).parents[2] / "docs" / "environment.md"
SECRETS = frozenset({"TOKEN", "KEY"})
CONTEXT = Context(workdir="/home/ann", umask=0o22, variables=SECRETS)
#: where the job is read again: nothing of it may come from there
ELSEWHERE = Context(workdir="/elsewhere", umask=0o22, variables=SECRETS)
JOBS: list[dict[str, Any]] = [
    {},
    {"gpus": "1..4", "epochs": 20, "hours": "2.5", "resize": "either", "own_curve": True},
    {"gpus": 2, "tasks": 3, "cpus": "0.5", "memory": "8GiB", "priority": -3},
    {"tasks": "2..4", "launcher": "torchrun", "time": "1h30m", "grace": "90s", "retries": 2},
    {"gpu_memory": "6GiB", "on_overrun": "stop"},
    {"gpus": 1, "gpu_memory": "6GiB", "exclusive": True},
    {"array": "0-99%8", "env": {"A": "b c"}, "workdir": "/data"},
    {"array": "1,3,5"},
    {"gpus": 1, "min_gpu_utilization": 10, "utilization_window": "30m", "tensorboard": "runs", "checkpoints": "/c"},
    {"after": ["12", "13:end"], "notify": "mail-me now", "notify_on": "error"},
    {"image": "python:3.12", "ports": ["8080:80"]},
    {"image": "python:3.12", "mounts": ["/data:/data:ro", "/tmp:/tmp"], "ports": ["8080:80"]},
]


@pytest.mark.parametrize("needs", JOBS, ids=str)
def test_a_job_of_our_own_survives_our_own_notation(needs: Any):
    understood = read_document(render_job(["python", "train.py"], "train", needs), CONTEXT)
    assert read_document(native_document(understood), ELSEWHERE) == understood


def test_a_job_that_waits_for_another_of_its_file_says_so_by_name():
    text = "\n---\n".join(
        yaml.safe_dump(render_job(["true"], name, {"after": after}))
        for name, after in (("one", []), ("two", ["one:end"]))
    )
    found = read_manifests(text, replace(CONTEXT, find_job=int))
    written = [render(one.spec, "native", ["one", "two"]) for one in found]
    assert [one.losses for one in written] == [(), ()]
    again = read_manifests("---\n".join(one.text for one in written), replace(ELSEWHERE, find_job=int))
    assert [one.spec for one in again] == [one.spec for one in found]
    assert render(found[1].spec, "native").losses == (
        "waiting for a job of the same file cannot be said in Swell's own notation",
    )


def test_an_array_of_a_foreign_document_is_an_array_in_our_own_notation():
    """Its container has a name and variables; roles have no array, so it is written as the only kind of task."""
    spec = read_document(job(container(env=[{"name": "A", "value": "b"}]), completions=3, parallelism=2), CONTEXT)
    again = read_document(native_document(spec), ELSEWHERE)
    [role], [other] = spec.roles, again.roles
    assert (again.array, again.env, other.command) == (spec.array, role.env, role.command)


def test_what_has_its_default_is_left_out():
    understood = read_document(render_job(["true"], "train", {}), CONTEXT)
    assert native_document(understood) == {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"command": ["true"], "workdir": "/home/ann"},
    }


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs", "Cc")), max_size=12)
NAME = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z]", fullmatch=True)
RANGE = st.tuples(st.integers(1, 8), st.integers(0, 8)).map(lambda two: f"{two[0]}..{two[0] + two[1]}")


TOLERATION = st.fixed_dictionaries(
    {"operator": st.just("Exists"), "key": NAME}, optional={"effect": st.sampled_from(["NoSchedule", "NoExecute"])}
)
SECRET = st.fixed_dictionaries({"name": st.sampled_from(sorted(SECRETS))}, optional={"secret": NAME})
VOLUME = st.fixed_dictionaries(
    {"claim": NAME, "folder": st.just("/srv/data"), "path": st.sampled_from(["/data", "/more"])},
    optional={"readOnly": st.booleans()},
)


@st.composite
def role_fields(draw: st.DrawFn, *, is_first: bool, gpu_range: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"command": [draw(NAME), *draw(st.lists(WORD, max_size=3))]}
    if draw(st.booleans()):
        fields["cpus"] = f"{draw(st.integers(1, 8000)) / 1000}"
    if draw(st.booleans()):
        fields["cpuLimit"] = f"{8000 + draw(st.integers(0, 800))}m"
    if draw(st.booleans()):
        fields["memory"] = f"{draw(st.integers(1, 10**6))}MiB"
    if gpu_range is not None and draw(st.booleans()):
        fields["gpus"] = gpu_range
    if draw(st.booleans()):
        ranged = is_first and gpu_range is None and draw(st.booleans())
        fields["tasks"] = draw(RANGE) if ranged else draw(st.integers(1, 9))
    return fields


@st.composite
def container_fields(draw: st.DrawFn, *, is_one: bool) -> dict[str, Any]:
    optional = {
        "volumes": st.lists(VOLUME, min_size=1, max_size=2, unique_by=lambda one: one["path"]),
        "mounts": st.lists(st.sampled_from(["/a:/in:ro", "/b:/out"]), min_size=1, unique=True),
        "shm": st.integers(1, 10**5).map(lambda mib: f"{mib}MiB"),
        **({"ports": st.integers(1024, 65535).map(lambda port: [f"{port}:80"])} if is_one else {}),
    }
    return {field: draw(values) for field, values in optional.items() if draw(st.booleans())}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Any job that our own notation can say, as far as its fields go together."""
    spec: dict[str, Any] = {}
    kind = draw(st.sampled_from(["one", "array", "roles"]))
    if kind == "roles":
        shared = draw(st.none() | RANGE)
        names = draw(st.lists(NAME, min_size=1, max_size=3, unique=True))
        spec["roles"] = [
            {"name": name, **draw(role_fields(is_first=number == 0, gpu_range=shared))}
            for number, name in enumerate(names)
        ]
        for role in spec["roles"]:
            if draw(st.booleans()):
                role["env"] = draw(st.dictionaries(NAME, WORD, max_size=2))
    elif kind == "array":
        spec |= draw(role_fields(is_first=False, gpu_range=None))
        spec.pop("tasks", None)
        spec["array"] = draw(st.sampled_from(["0-9%3", "1,3,5", "0-99:7%2"]))
    else:
        spec |= draw(role_fields(is_first=True, gpu_range=None))
        if "tasks" not in spec and draw(st.booleans()):
            spec["gpus"] = draw(RANGE)
    optional = {
        "priority": st.integers(-1000, 1000),
        "time": st.integers(1, 10**6).map(lambda seconds: f"{seconds}s"),
        "grace": st.integers(1, 3600),
        "epochs": st.integers(1, 1000),
        "resize": st.sampled_from(["at-checkpoint", "immediate", "either", "never"]),
        "retries": st.integers(0, 1000),
        "env": st.dictionaries(NAME, WORD, max_size=3),
        "workdir": st.just("/data"),
        "checkpoints": st.just("/data/c"),
        "ownCurve": st.just(True),
        "checkpointEvery": st.just("600s"),
        "hours": st.integers(1, 4000).map(lambda quarters: str(quarters / 4)),
        "tensorboard": st.just("/logs"),
        "notify": st.sampled_from(["mail-me now", "https://example.org/hook", "mailto:ann@example.org"]),
        "after": st.lists(st.integers(1, 99).map(str), max_size=2, unique=True),
        "image": st.just("python:3.12"),
        "nodeSelector": st.dictionaries(NAME, NAME, min_size=1, max_size=2),
        "tolerations": st.lists(TOLERATION, min_size=1, max_size=2),
    }
    for field, values in optional.items():
        if draw(st.booleans()):
            spec[field] = draw(values)
    if draw(st.booleans()):
        spec["secrets"] = draw(st.lists(SECRET, min_size=1, max_size=2, unique_by=lambda one: one["name"]))
        spec["env"] = {}
    if "notify" in spec and draw(st.booleans()):
        spec["notifyOn"] = draw(st.sampled_from(["end", "error"]))
    if "image" in spec:
        spec |= draw(container_fields(is_one=kind == "one" and "tasks" not in spec))
    return {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": draw(NAME)}, "spec": spec}


TOLD = frozenset(
    {"hours", "ownCurve", "checkpointEvery", "tensorboard", "notify", "notifyOn"}
)  # what only Swell does, of any job
ALONE = frozenset({"epochs", "priority", "resize", "retries", "after", "checkpoints", "mounts", "ports"}) | TOLD
CANNOT_SAY = {
    "jobset": TOLD
    | frozenset({"mounts", "ports", "after", "nodeSelector", "tolerations", "shm", "secrets", "volumes"}),
    "kubernetes": ALONE | {"roles", "tasks", "secrets", "volumes"},
    "sbatch": ALONE | {"roles", "image", "shm", "secrets", "volumes", "nodeSelector", "tolerations", "cpuLimit"},
}


def as_said(document: dict[str, Any], target: str) -> dict[str, Any]:
    """The same, as far as the target can say it."""
    spec = document["spec"]
    if "roles" in CANNOT_SAY[target] and "roles" in spec:
        spec = {**spec, **spec["roles"][0]}
        spec.pop("name")
    spec = {field: value for field, value in spec.items() if field not in {*CANNOT_SAY[target], "roles"}} | (
        {"roles": [_fixed(role, target) for role in spec["roles"]]} if "roles" in spec and target == "jobset" else {}
    )
    spec = _fixed(spec, target) | ({} if target == "sbatch" else {"image": "python:3.12"})
    if "array" in spec:
        spec["array"] = "0-9%3" if target != "sbatch" else spec["array"]
    return {**document, "spec": spec}


def _fixed(given: dict[str, Any], target: str) -> dict[str, Any]:
    """One width, of GPUs where a JobSet has them; for Slurm whole CPUs, and memory for each."""
    found = dict(given)
    for field in ("tasks", "gpus"):
        if field in found and (field == "tasks" or target != "jobset"):
            found[field] = str(found[field]).partition("..")[0]
    if target == "sbatch":
        cpus = math.ceil(float(found.pop("cpus", 1)))
        memory = {"memory": f"{cpus * int(found.pop('memory').removesuffix('MiB'))}MiB"} if "memory" in found else {}
        found |= {"cpus": cpus, **memory}
        if "env" in found:
            found["env"] = {name.replace("-", "_"): text for name, text in found["env"].items()}
    return found


def beside_variables(written: Rendering) -> tuple[str, ...]:
    """What is lost beside the variables that only Swell sets, which are named for every job."""
    return tuple(loss for loss in written.losses if not loss.startswith("the variables "))


def said_by(target: str) -> st.SearchStrategy[dict[str, Any]]:
    return documents().map(lambda document: as_said(document, target))


@given(documents())
def test_whatever_our_own_writer_loses_nothing_of_is_read_back_unchanged(document):
    spec = read_document(document, CONTEXT)
    written = render(spec, "native")
    assert written.losses == ()
    [again] = read_manifests(written.text, ELSEWHERE)
    assert again.spec == spec


def same_tasks(spec: JobSpec) -> JobSpec:
    """What a JobSet cannot leave as it is: all variables are of roles, its tasks are told of their Jobs, and it counts
    as its own kind."""
    told = {
        *OF_RANK,
        *OF_RANKS,
        *OF_EVERY_TASK,
        "GLOBAL_REPLICAS",
        "REPLICATED_JOB_NAME",
        "REPLICATED_JOB_REPLICAS",
        "SWELL_SHARDS",
    }
    shared = dict(spec.env)
    roles = tuple(
        replace(
            role,
            env=tuple(sorted((name, text) for name, text in {**shared, **dict(role.env)}.items() if name not in told)),
            numbered=(),
        )
        for role in spec.roles
    )
    return replace(spec, roles=roles, env=(), kind="", notes=(), rewrites_width=False, container=None)


@given(said_by("jobset"))
def test_whatever_the_jobset_writer_loses_nothing_of_is_read_back_as_the_same_tasks(document):
    """An image is not a loss, but on this machine nobody reads it."""
    spec = read_document(document, CONTEXT)
    written = render(spec, "jobset")
    assert beside_variables(written) == ()
    [again] = read_manifests(written.text, ELSEWHERE)
    assert same_tasks(again.spec) == same_tasks(spec)


#: what a job's tasks print, each in one write: some of their variables, their words, and a mark
PROBE = ("sh", "-c", 'printf "%s\\0" "$RANK" "$WORLD_SIZE" "$SWELL_TASK_INDEX" "$ODD" "$@" "$(printf \\\\1)"', "probe")


def as_batch(spec: JobSpec) -> dict[str, Any]:
    """What a script has for all its tasks together, and what is beside."""
    [role] = spec.roles
    own, tasks = role.resources, 1 if spec.array else role.count
    return {
        "name": spec.name,
        "together": (tasks * own.cpus_milli, tasks * own.memory_mib, tasks * own.gpus),
        "array": spec.array,
        "limits": (spec.time_limit_s, spec.grace_s, spec.is_held),
        "workdir": spec.workdir,
    }


@given(said_by("sbatch"), st.booleans())
def test_whatever_the_sbatch_writer_loses_nothing_of_is_read_back_as_the_same_job(document, is_held):
    spec = replace(read_document(document, CONTEXT), is_held=is_held)
    written = render(spec, "sbatch")
    assert beside_variables(written) == ()
    [again] = read_manifests(written.text, CONTEXT)
    assert as_batch(again.spec) == as_batch(spec)


@settings(max_examples=40)
@given(said_by("sbatch"), st.lists(WORD, max_size=3), WORD)
def test_what_the_sbatch_writer_writes_starts_the_same_tasks_with_the_same_words_and_variables(document, words, odd):
    """Run as the reader runs it, where there is no Slurm."""
    spec = read_document(document, CONTEXT)
    command = (*PROBE, *words)
    [first, *others] = spec.roles
    spec = replace(spec, roles=(replace(first, command=command), *others), env=(("ODD", odd),))
    written = render(spec, "sbatch")
    assert beside_variables(written) == ()
    [again] = read_manifests(written.text, CONTEXT)
    told = {"PATH": "/usr/bin:/bin", "SWELL_JOB_ID": "7", "SWELL_ATTEMPT": "7.1", "SWELL_TASK_INDEX": "3", "RANK": ""}
    done = subprocess.run(again.spec.roles[0].command, env=told, capture_output=True, text=True, check=True)
    found = sorted(tuple(one.split("\0")[:-1]) for one in done.stdout.split("\1\0")[:-1])
    tail = (dict(first.env).get("ODD", odd), *words)
    if spec.array or first.count == 1:
        rank = "" if ranks_of(spec) is Ranks.INSIDE else "0"
        assert found == [(rank, "1", "3" if spec.array else "0", *tail)]
    else:
        assert found == sorted((str(rank), str(first.count), str(rank), *tail) for rank in range(first.count))


FOREIGN = {
    "Pod": pod(container(**gpus(1, 4))),
    "Job": job(completions=5, parallelism=2, backoffLimit=3),
    "PyTorchJob": pytorchjob(replicas(1), replicas(2)),
    "JobSet": jobset(replicated("a"), replicated("b", 2, completions=2, parallelism=2)),
}


@pytest.mark.parametrize("target", ["native", "jobset", "sbatch"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_every_kind_can_be_written_for_every_target(kind, target):
    found = render(read_document(FOREIGN[kind], CONTEXT), target)
    assert found.text
    assert all("cannot be said in" in loss for loss in found.losses)


def test_an_sbatch_script_asks_slurm_for_the_same():
    needs = {"gpus": 2, "tasks": 4, "cpus": "2", "memory": "8GiB", "time": "2h", "env": {"A": "b c"}, "workdir": "/w"}
    found = render(read_document(render_job(["python", "train.py", "a b"], "train", needs), CONTEXT), "sbatch")
    assert found.text == (
        "#!/bin/sh\n#SBATCH --job-name=train\n#SBATCH --chdir=/w\n#SBATCH --ntasks=4\n#SBATCH --cpus-per-task=2\n"
        "#SBATCH --mem-per-cpu=4096M\n#SBATCH --gpus-per-task=2\n#SBATCH --time=2:00:00\n#SBATCH --signal=B:TERM@30\n"
        "\nexport A='b c'\n"
        'export SWELL_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" SWELL_JOB_NAME="$SLURM_JOB_NAME" '
        'NUM_NODES="$SLURM_JOB_NUM_NODES" NODELIST="$(scontrol show hostnames | paste -sd, -)" '
        'MASTER_PORT="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}" PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}" '
        'JOB_RESTARTED="$([ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && echo TRUE || echo FALSE)" NUM_GPUS=2 '
        'PL_TORCH_DISTRIBUTED_BACKEND=nccl WORLD_SIZE="$SLURM_NTASKS" SWELL_TASK_COUNT="$SLURM_NTASKS" '
        'MASTER_ADDR="$(hostname)"\n'
        'srun sh -c \'export RANK="$SLURM_PROCID" SWELL_TASK_INDEX="$SLURM_PROCID" '
        'JOB_COMPLETION_INDEX="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" NODE_RANK="$SLURM_NODEID" '
        'GROUP_RANK="$SLURM_NODEID"; exec "$@"\' sh python train.py \'a b\'\n'
    )
    assert beside_variables(found) == ()


def test_nothing_in_a_job_becomes_a_line_of_the_script_of_its_own():
    needs = {"env": {"A;touch x": "1", "B": "\n#SBATCH --uid=0"}, "workdir": "/w\n#SBATCH --uid=0"}
    found = render(read_document(render_job(["x", "a\ntouch y"], "train", needs), CONTEXT), "sbatch")
    options = [line for line in found.text.splitlines() if line.startswith("#SBATCH")]
    assert [line.partition("=")[0] for line in options] == [
        "#SBATCH --job-name",
        "#SBATCH --ntasks",
        "#SBATCH --cpus-per-task",
        "#SBATCH --uid",
    ]
    assert "export B='\n#SBATCH --uid=0'\nexport SWELL_JOB_ID=" in found.text
    assert found.text.endswith("\nsrun x 'a\ntouch y'\n")
    assert "touch x" not in found.text
    assert [loss.partition(" cannot be")[0] for loss in beside_variables(found)] == [
        "a variable whose name is none in a shell",
        "a folder whose name",
    ]


def test_what_slurm_cannot_do_is_said():
    needs = {"gpus": "1..4", "epochs": 3, "priority": 5, "notify": "mailto:a@b.org", "image": "i"}
    losses = beside_variables(render(read_document(render_job(["x"], "train", needs), CONTEXT), "sbatch"))
    assert losses == (
        "a width of 1..4 GPUs (this script asks for 1) cannot be said in an sbatch script",
        "an image cannot be said in an sbatch script",
        "priority cannot be said in an sbatch script",
        "epochs cannot be said in an sbatch script",
        "notify cannot be said in an sbatch script",
    )


def test_for_kubernetes_a_job_of_our_own_needs_an_image_and_becomes_the_objects_that_swell_creates():
    with pytest.raises(Rejected, match="a job on Kubernetes runs in a container"):
        render(read_document(render_job(["x"], "train", {}), CONTEXT), "kubernetes")
    found = render(read_document(render_job(["x"], "train", {"tasks": 2, "image": "i"}), CONTEXT), "kubernetes")
    assert [one["kind"] for one in yaml.safe_load_all(found.text)] == ["Service", "Pod", "Pod"]
    assert beside_variables(found) == ("starting all pods together cannot be said in plain objects of Kubernetes",)


def test_the_targets_are_those_of_the_command_line():
    from swell.cli.render import TARGETS as TYPED

    assert set(TYPED) == set(TARGETS)


def on_its_own(spec: JobSpec, told: set[str]) -> dict[str, Any]:
    """What plain objects of Kubernetes say of a job: all but its name, and that it is one of Swell's."""
    [role] = spec.roles
    env = tuple(sorted((name, text) for name, text in {**dict(spec.env), **dict(role.env)}.items() if name not in told))
    return {
        "role": replace(role, name="", env=env, numbered=()),
        "array": spec.array,
        "limits": (spec.time_limit_s, spec.grace_s, spec.width_min, spec.retries if spec.array else 0),
    }


@given(said_by("kubernetes"))
def test_whatever_the_kubernetes_writer_loses_nothing_of_is_read_back_as_the_same_task(document):
    spec = read_document(document, CONTEXT)
    written = render(spec, "kubernetes")
    assert beside_variables(written) == ()
    [made] = list(yaml.safe_load_all(written.text))
    told = {one["name"] for one in container_of(made)["env"]} - {*dict(spec.env), *dict(spec.roles[0].env)}
    [again] = read_manifests(made, ELSEWHERE)
    assert on_its_own(again.spec, told) == on_its_own(spec, told)


def container_of(made: dict[str, Any]) -> dict[str, Any]:
    pod = made if made["kind"] == "Pod" else made["spec"]["template"]
    [container] = pod["spec"]["containers"]
    return dict(container)


# -- what a task is told -------------------------------------------------------------------------------------

#: of the table in docs/environment.md, what only some jobs have, and who loses nothing when a writer leaves it out
OF_SOME = {
    *("JOB_INDEX", "JOB_GLOBAL_INDEX", "GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"),
    *("SWELL_SHARDS", "SWELL_ON_YIELD", "SWELL_LAST_WORDS", "NVIDIA_VISIBLE_DEVICES"),
    *("BATCH_SIZE", "TRAINING_SET_SIZE", "SWELL_CUSTOM_DIR", "SWELL_SNAPSHOTS_DIR", "SWELL_DATA_DIR"),
}


def test_every_variable_of_the_documentation_is_written_or_named_as_lost():
    rows = [line.split("|")[1] for line in ENVIRONMENT.read_text().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    known = {*OF_RANK, *OF_RANKS, *OF_EVERY_TASK, *OF_GANG, *OF_MPI, *OF_EPOCHS, *OF_GPU_MEMORY, *OF_SWELL}
    assert documented - OF_SOME == known


SHAPES = {
    "array": {"array": "0-4%2", "retries": 2},
    "gang": {"tasks": 3, "gpus": 1},
    "one": {"epochs": 3},
    "several GPUs": {"gpus": 4},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", ["sbatch", "jobset", "kubernetes"])
def test_a_task_finds_each_variable_or_its_loss_is_said(shape, target):
    spec = read_document(render_job(["x"], "train", {**SHAPES[shape], "image": "i"}), ELSEWHERE)
    found = render(spec, target)
    [loss] = [loss for loss in found.losses if loss.startswith("the variables ")]
    named = set(re.findall(r"[A-Z][A-Z_]+", loss))
    given = {"sbatch": {"CUDA_VISIBLE_DEVICES"}, "jobset": {"JOB_COMPLETION_INDEX"}, "kubernetes": set()}[target]
    given |= {"JOB_COMPLETION_INDEX"} if target == "kubernetes" and shape == "array" else set()
    written = set(re.findall(r"\b([A-Z][A-Z_]+)=", found.text) if target == "sbatch" else _env_names(found.text))
    assert named.isdisjoint(written)
    assert [name for name in told_variables(spec) if name not in named | written | given] == []
    assert {"SWELL_TASK_INDEX", "WORLD_SIZE"} <= written
    assert ("RANK" in written) == (shape != "several GPUs")


def _env_names(text: str) -> set[str]:
    return set(re.findall(r"^ +- name: ([A-Z_]+)$", text, re.MULTILINE))


def test_an_array_in_a_script_reads_its_index_under_both_names():
    found = render(read_document(render_job(["x"], "train", {"array": "0-4%2"}), CONTEXT), "sbatch")
    for name in ("SWELL_TASK_INDEX", "JOB_COMPLETION_INDEX"):
        assert f'{name}="$SLURM_ARRAY_TASK_ID"' in found.text


def test_a_jobset_tells_its_ranks_where_they_meet_and_an_array_tries_each_index_again():
    gang = read_document(render_job(["x"], "train", {"tasks": 3, "gpus": 1, "image": "i", "retries": 2}), ELSEWHERE)
    document = yaml.safe_load(render(gang, "jobset").text)
    [entry] = document["spec"]["replicatedJobs"]
    env = {one.pop("name"): one for one in entry["template"]["spec"]["template"]["spec"]["containers"][0]["env"]}
    index = {
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    }
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == (index, {"value": "3"}, {"value": "0"})
    assert env["MASTER_ADDR"] == {"value": f"train-{entry['name']}-0-0.train"}
    assert document["spec"]["failurePolicy"] == {"maxRestarts": 2}
    array = read_document(render_job(["x"], "train", {"array": "0-4", "image": "i", "retries": 2}), ELSEWHERE)
    document = yaml.safe_load(render(array, "jobset").text)
    assert "failurePolicy" not in document["spec"]
    assert document["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimitPerIndex"] == 2


def test_a_role_after_the_first_of_a_jobset_is_not_told_a_rank_and_that_is_said():
    roles = [{"name": "a", "command": ["x"]}, {"name": "b", "command": ["y"], "tasks": 2}]
    spec = read_document(
        {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "t"}, "spec": {"roles": roles, "image": "i"}},
        ELSEWHERE,
    )
    found = render(spec, "jobset")
    [loss] = [loss for loss in found.losses if loss.startswith("the variables ")]
    assert {"RANK", "NODE_RANK", "SWELL_TASK_INDEX", "JOB_COMPLETION_INDEX"} <= set(re.findall(r"[A-Z_]+", loss))
