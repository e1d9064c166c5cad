"""What a person sees who looks at a job file before submitting it: render, schema, explain and --dry-run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moving.shell import Shell

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = "apiVersion: swell/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  command: [python, train.py]\n  gpus: 1..2\n"
SECRET = "  env: {TOKEN: s3cret}\n"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def write(tmp_path: Path, text: str, name: str = "job.yaml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_a_job_is_printed_as_an_sbatch_script_and_what_slurm_cannot_do_is_said(shell: Shell, tmp_path: Path) -> None:
    file = write(tmp_path, JOB)
    done = shell.type("swell", "render", "--to", "sbatch", file)
    assert (done.code, done.stdout.splitlines()[0], done.stdout.splitlines()[-1]) == (
        0,
        "#!/bin/sh",
        "srun python train.py",
    )
    said = "a width of 1..2 GPUs (this script asks for 1) cannot be said in an sbatch script"
    assert done.stderr.splitlines()[0] == f"swell: {file}: job 'train': {said}"
    assert done.stderr.splitlines()[1].startswith(f"swell: {file}: job 'train': the variables SWELL_HOSTS, TF_CONFIG, ")
    assert len(done.stderr.splitlines()) == 2


def test_an_aichor_manifest_is_printed_as_the_jobset_that_its_operator_makes(shell: Shell) -> None:
    done = shell.type("swell", "render", "--to", "kubernetes", str(EXAMPLES / "aichor" / "scenario-2.yaml"))
    document = yaml.safe_load(done.stdout)
    names = [one["name"] for one in document["spec"]["replicatedJobs"]]
    assert (done.code, document["kind"], names) == (0, "JobSet", ["worker", "worker-heavy"])


@pytest.mark.parametrize("kind", ["pod.yaml", "job.yaml", "jobset.yaml", "pytorchjob.yaml", "genai-job1.yaml"])
def test_a_foreign_document_is_printed_as_a_cluster_without_swell_would_take_it(
    kind: str, shell: Shell, tmp_path: Path
) -> None:
    """Kubernetes refuses requests of GPUs that are not the limits, and nobody places pods for a scheduler that is not
    there."""

    def pods(value: object) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict) and isinstance(value.get("containers"), list):
            yield value
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from pods(one)

    document = yaml.safe_load((EXAMPLES / "kubernetes" / kind).read_text())
    gpus = {"requests": {"nvidia.com/gpu": 1, "cpu": 1}, "limits": {"nvidia.com/gpu": 4}}
    for pod in pods(document):
        pod["schedulerName"] = "fluence"
        for container in pod["containers"]:
            container["resources"] = gpus
            container["env"] = [{"name": "NGPU", "value": "7"}, {"name": "OTHER", "value": "7"}]
    document["metadata"].pop("annotations", None)
    if document["kind"] == "Job":
        document["spec"]["parallelism"] = document["spec"].get("completions", 1)
    done = shell.type("swell", "render", "--to", "kubernetes", write(tmp_path, yaml.safe_dump(document)))
    assert done.code == 0, done
    for pod in pods(yaml.safe_load(done.stdout)):
        assert "schedulerName" not in pod
        for container in pod["containers"]:
            assert container["resources"] == {
                "requests": {"nvidia.com/gpu": "1", "cpu": 1},
                "limits": {"nvidia.com/gpu": "1"},
            }
            assert [one["value"] for one in container["env"]] == ["1", "7"]
    said = done.stderr.splitlines()
    assert sorted(line.partition(" cannot be said")[0].split(": ", 3)[-1] for line in said) == [
        "a width of 1..4 GPUs (these objects have 1)",
        "schedulerName fluence, for which Swell stands in,",
    ]


def test_several_jobs_are_one_file_that_can_be_submitted(shell: Shell, tmp_path: Path) -> None:
    file = write(tmp_path, f"{JOB}---\n{JOB.replace('train}', 'other}')}")
    done = shell.type("swell", "render", file)
    assert (done.code, [one["metadata"]["name"] for one in yaml.safe_load_all(done.stdout)]) == (0, ["train", "other"])
    again = write(tmp_path, done.stdout, "again.yaml")
    assert shell.type("swell", "submit", again).code == 0


def test_render_submits_nothing_and_refuses_what_cannot_be_read(shell: Shell, tmp_path: Path) -> None:
    done = shell.type("swell", "render", write(tmp_path, JOB.replace("gpus", "gpu")))
    assert (done.code, done.stdout) == (2, "")
    assert "job.yaml: line 6: spec has no field 'gpu'; did you mean 'gpus'?" in done.stderr
    assert shell.service.store.listing(ended_since=None) == ([], 0)


def test_a_dry_run_says_where_each_value_comes_from_and_whether_it_can_run_here(shell: Shell, tmp_path: Path) -> None:
    done = shell.type("swell", "submit", "--dry-run", write(tmp_path, JOB + SECRET))
    assert done.code == 0, done
    assert "s3cret" not in done.stdout
    lines = done.stdout.splitlines()
    assert "  gpus: 1..2  # line 6" in lines
    assert "  env:  # line 7" in lines
    assert any(line.startswith("  workdir: ") and line.endswith("  # your folder") for line in lines)
    assert lines[-1] == "# It can run here."
    assert yaml.safe_load(done.stdout)["spec"]["command"] == ["python", "train.py"]


def test_the_schema_of_a_kind_is_json_and_without_one_the_kinds_are_listed(shell: Shell) -> None:
    found = json.loads(shell.type("swell", "schema", "jobset").stdout)
    assert found["properties"]["kind"] == {"const": "JobSet"}
    listed = shell.type("swell", "schema").stdout
    assert [kind in listed for kind in ("JobSet", "MPIJob", "AIchorManifest", "swell/v1")] == [True] * 4


def test_a_field_is_explained(shell: Shell) -> None:
    done = shell.type("swell", "explain", "job.spec.gpus")
    assert done.stdout.splitlines() == [
        "apiVersion: swell/v1, kind: Job",
        "field: spec.gpus",
        "GPUs of each task: 2, or a range 1..4 for one task.",
    ]
    refused = shell.type("swell", "explain", "job.spec.gpu")
    assert (refused.code, refused.stderr) == (2, "swell: there is no field 'gpu' here; did you mean 'gpus'?\n")
    assert refused.stdout == ""
    indexed = shell.type("swell", "explain", "pod.spec.containers[0].env").stdout
    plain = shell.type("swell", "explain", "pod.spec.containers.env").stdout
    assert (
        indexed.splitlines()[2:]
        == plain.splitlines()[2:]
        == [
            "Variables of the program.",
            "  name       Name of the variable.",
            "  value      Its value; $(NAME) is that of a variable before it.",
            "  valueFrom  Where its value comes from, instead of value.",
        ]
    )
    named = shell.type("swell", "explain", "aichormanifest.spec.types.worker.count").stdout
    assert named.splitlines()[-1] == "Jobs of this type; 1 when left out."
    entries = shell.type("swell", "explain", "pod.spec").stdout
    assert "initContainers                 Refused: initContainers cannot be run" in entries


SCRIPT = "#!/bin/sh\n#SBATCH --gpus=1 -t 10\necho $#\n"


def test_a_dry_run_of_a_batch_script_has_its_name_and_arguments_and_the_options_beside_it(
    shell: Shell, tmp_path: Path
) -> None:
    file = write(tmp_path, SCRIPT, "train.sh")
    done = shell.type("swell", "submit", "--dry-run", "--sbatch", "--time=5", file, "lr=0.1", "--epochs", "3")
    assert (done.code, done.stderr) == (0, "")
    document = yaml.safe_load(done.stdout)
    assert document["metadata"]["name"] == "train.sh"
    assert document["spec"]["command"] == [file, "lr=0.1", "--epochs", "3"]
    assert (document["spec"]["time"], "swell_programs" in done.stdout) == ("300s", False)


def test_what_may_have_been_meant_for_submit_and_stands_behind_a_script_is_said(shell: Shell, tmp_path: Path) -> None:
    file = write(tmp_path, SCRIPT, "train.sh")
    done = shell.type("swell", "submit", "--dry-run", file, "--wait")
    assert done.code == 0
    assert done.stderr == (
        f"swell: {file}: what follows its name is given to the script: --wait; options of swell submit stand before "
        "the script, and several scripts are named with -f\n"
    )


def test_an_option_of_sbatch_before_a_script_is_told_where_it_goes(shell: Shell, tmp_path: Path) -> None:
    file = write(tmp_path, SCRIPT, "train.sh")
    done = shell.type("swell", "submit", "--gres=gpu:2", file)
    assert (done.code, done.stdout) == (2, "")
    assert 'To override what is in the script: swell submit --sbatch "--gres=gpu:2 --time=1:00" job.sh' in done.stderr


def test_a_file_with_options_of_slurm_and_no_first_line_is_told_so(shell: Shell, tmp_path: Path) -> None:
    done = shell.type("swell", "submit", write(tmp_path, "#SBATCH -n 2\ntrue\n", "job.sh"))
    assert done.code == 2
    assert "job.sh: it is no batch script: the first line must be #!/bin/sh or the like" in done.stderr
