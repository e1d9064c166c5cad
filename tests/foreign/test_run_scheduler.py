"""What run-scheduler's words become, as a table: the document, not what is done with it."""

from __future__ import annotations

from typing import Any

import pytest

from swell.errors import Rejected
from swell.foreign.run_scheduler import Scheduled, read_switch, render_manifest
from swell.manifests import Context, read_document
from swell.model.resources import Resources

CONTEXT = Context(workdir="/")


def spec(*, gpus_per_node: int = 4, library: str | None = None, pythonpath: str = "", **words: Any) -> dict[str, Any]:
    job = Scheduled(**{"name": "job", "script_path": "train.py", **words})
    manifest = render_manifest(job, gpus_per_node=gpus_per_node, library=library, pythonpath=pythonpath)
    about = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "job"}}
    assert {field: manifest[field] for field in about} == about
    return dict(manifest["spec"])


def test_with_nothing_but_a_script_it_takes_one_gpu_up_to_all_of_a_machine_and_no_cpu_of_its_own():
    assert spec() == {"command": ["python", "train.py"], "cpus": 0, "gpus": "1..4", "env": {}}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ({"is_single_gpu": True}, {"gpus": 1}),
        ({"is_single_gpu": True, "disable_gpu_sharing": True}, {"gpus": 1}),
        ({"is_single_gpu": True, "estimated_memory_mib": 6144}, {"gpuMemory": "6144MiB"}),
        (
            {"is_single_gpu": True, "estimated_memory_mib": 6144, "disable_gpu_sharing": True},
            {"gpus": 1, "gpuMemory": "6144MiB", "exclusive": True},
        ),
        ({"estimated_memory_mib": 1000}, {"gpuMemory": "1000MiB"}),
        (
            {"estimated_memory_mib": 1000, "reports": True},
            {"gpus": "1..4", "gpuMemory": "1000MiB", "exclusive": True},
        ),
        ({"is_single_gpu": True, "estimated_memory_mib": 1000, "reports": True}, {"gpuMemory": "1000MiB"}),
        (
            {"estimated_memory_mib": 6144, "disable_gpu_sharing": True},
            {"gpus": "1..4", "gpuMemory": "6144MiB", "exclusive": True},
        ),
        ({"reports": True}, {"gpus": "1..4"}),
        ({"reports": False}, {"gpus": 1}),
        ({"reports": False, "is_single_gpu": False}, {"gpus": "1..4"}),
        (
            {"reports": False, "estimated_memory_mib": 6144, "disable_gpu_sharing": True},
            {"gpus": 1, "gpuMemory": "6144MiB", "exclusive": True},
        ),
        ({"gpus_per_node": 0}, {"gpus": "1..1"}),
        ({"gpus_per_node": 8}, {"gpus": "1..8"}),
    ],
)
def test_the_gpus_it_asks_for(words, asked):
    found = spec(**words)
    assert {field: found[field] for field in ("gpus", "gpuMemory", "exclusive") if field in found} == asked


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ({}, Resources(0, 0, 1)),
        ({"is_single_gpu": True, "estimated_memory_mib": 6144}, Resources(0, 0, 0, 6144)),
        (
            {"is_single_gpu": True, "estimated_memory_mib": 6144, "disable_gpu_sharing": True},
            Resources(0, 0, 1, 6144),
        ),
        ({"estimated_memory_mib": 6144, "disable_gpu_sharing": True}, Resources(0, 0, 1, 6144)),
        ({"image": "i", "custom_dir": "/c", "data_dir": "/d", "port_mapping": "8888:80"}, Resources(0, 0, 1)),
    ],
)
def test_our_reader_understands_what_is_made_of_it(words, asked):
    made = read_document(render_manifest(Scheduled(name="job", script_path="x.py", **words), gpus_per_node=4), CONTEXT)
    assert [role.resources for role in made.roles] == [asked]
    assert (made.container is None) == ("image" not in words)


@pytest.mark.parametrize("word", ["true", "True", "YES", "on", "1", "y", " t "])
def test_people_say_yes_in_several_words(word):
    assert read_switch(word) is True


@pytest.mark.parametrize("word", ["false", "No", "OFF", "0", "n", "f"])
def test_and_no(word):
    assert read_switch(word) is False


@pytest.mark.parametrize("word", ["", "maybe", "2", "yess", "train"])
def test_any_other_word_is_neither(word):
    assert read_switch(word) is None


def test_the_guess_of_its_hours_and_its_epochs_are_kept():
    found = spec(est_nhours=2.5, max_epochs=7)
    assert (found["hours"], found["epochs"]) == ("2.5", 7)


@pytest.mark.parametrize("hours", [1.0, 0.5, 0.0, -3.0, float("nan")])
def test_a_guess_of_an_hour_or_less_is_refused(hours):
    with pytest.raises(Rejected, match=r"est_nhours is .*, but must be more than 1"):
        spec(est_nhours=hours)


def test_what_the_script_reads_is_in_its_variables():
    found = spec(batch_size=32, training_set_size=5000, estimated_memory_mib=2048)
    assert found["env"] == {"BATCH_SIZE": "32", "TRAINING_SET_SIZE": "5000", "RESERVED_MEM": "2048"}


def test_without_a_container_the_variables_name_the_real_folders():
    found = spec(custom_dir="/home/a/code", snapshots_dir="/home/a/shots", data_dir="/home/a/datasets")
    assert found["env"] == {
        "SWELL_CUSTOM_DIR": "/home/a/code",
        "SWELL_SNAPSHOTS_DIR": "/home/a/shots",
        "SWELL_DATA_DIR": "/home/a/datasets",
    }
    assert found["workdir"] == "/home/a/code"
    assert "mounts" not in found


def test_in_a_container_they_are_where_they_always_were():
    found = spec(
        image="torch:2",
        custom_dir="/home/a/code",
        snapshots_dir="/home/a/shots",
        data_dir="/home/a/datasets",
        port_mapping="8888:80, 6006:6006",
        library="/opt/lib",
        pythonpath="/theirs",
    )
    assert (found["image"], found["ports"]) == ("torch:2", ["8888:80", "6006:6006"])
    assert found["mounts"] == [
        "/home/a/code:/custom",
        "/home/a/shots:/snapshots",
        "/home/a/datasets:/data",
    ]
    assert found["env"] == {
        "SWELL_CUSTOM_DIR": "/custom",
        "SWELL_SNAPSHOTS_DIR": "/snapshots",
        "SWELL_DATA_DIR": "/data",
    }
    assert (found["command"], found["workdir"]) == (["python", "/custom/train.py"], "/custom")


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ({"script_path": "train.py"}, "train.py"),
        ({"script_path": "train.py", "custom_dir": "/c"}, "/c/train.py"),
        ({"script_path": "/custom/a/train.py", "custom_dir": "/c"}, "/c/a/train.py"),
        ({"script_path": "/elsewhere/train.py", "custom_dir": "/c"}, "/elsewhere/train.py"),
        ({"script_path": "/custom/train.py"}, "/custom/train.py"),
        ({"script_path": "/custom/train.py", "custom_dir": "/c", "image": "i"}, "/custom/train.py"),
        ({"script_path": "a/train.py", "custom_dir": "/c", "image": "i"}, "/custom/a/train.py"),
        ({"script_path": "train.py", "image": "i"}, "train.py"),
    ],
)
def test_the_script_is_found_however_it_is_named(words, script):
    assert spec(**words)["command"] == ["python", script]


def test_our_library_goes_before_every_other():
    assert spec(library="/lib", pythonpath="/theirs")["env"]["PYTHONPATH"] == "/lib:/theirs"
    assert spec(library="/lib")["env"]["PYTHONPATH"] == "/lib"


@pytest.mark.parametrize("ports", ["80", "0:80", "80:70000", "a:b", "8888:80,,", "", "8888:80:80"])
def test_a_port_mapping_that_is_none_is_refused(ports):
    with pytest.raises(Rejected, match="is not nodePort:containerPort"):
        spec(image="i", port_mapping=ports)


def test_a_port_mapping_without_a_container_is_refused():
    with pytest.raises(Rejected, match="port_mapping needs an image"):
        spec(port_mapping="8888:80")
