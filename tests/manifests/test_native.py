"""What a native manifest may say, and what is said to whoever says something else."""

from __future__ import annotations

from typing import Any

import pytest

from swell.errors import NotFound, Rejected
from swell.manifests import Context, read_document
from swell.manifests.fields import describe
from swell.model.job import After, Array, Dimension, JobSpec, Notify, ResizeMode, Role
from swell.model.launcher import Launcher
from swell.model.quantity import IndexSet
from swell.model.resources import Resources

from .kubernetes import CONTEXT, refusal


def manifest(spec: object = None, **top: Any) -> dict[str, Any]:
    return {"apiVersion": "swell/v1", "kind": "Job", "spec": spec, **top}


def read(spec: dict[str, Any], **top: Any) -> JobSpec:
    return read_document(manifest({"command": ["true"], **spec}, **top), CONTEXT)


def test_every_field_is_understood():
    document = manifest(
        {
            "command": ["python", "train.py", "--epochs", 3],
            "tasks": "2..4",
            "gpus": 1,
            "cpus": "1.5",
            "memory": "8GiB",
            "priority": -7,
            "time": "1h30m",
            "grace": "5s",
            "env": {"B": 2, "A": True, "C": "x=y"},
            "workdir": "runs/1",
        },
        metadata={"name": "resnet-50.v1_b"},
    )
    assert read_document(document, CONTEXT) == JobSpec(
        name="resnet-50.v1_b",
        roles=(Role("worker", ("python", "train.py", "--epochs", "3"), Resources(1500, 8192, 1), 2),),
        dimension=Dimension.TASKS,
        width_min=2,
        width_max=4,
        array=None,
        priority=-7,
        time_limit_s=5400.0,
        grace_s=5.0,
        workdir="/home/ann/runs/1",
        env=(("A", "true"), ("B", "2"), ("C", "x=y")),
        umask=0o027,
    )


def test_a_command_alone_is_a_job_of_one_task_and_one_cpu_without_a_limit():
    assert read_document(manifest({"command": ["/bin/true"]}), CONTEXT) == JobSpec(
        name="true",
        roles=(Role("worker", ("/bin/true",), Resources(1000, 0, 0), 1),),
        dimension=Dimension.TASKS,
        width_min=1,
        width_max=1,
        array=None,
        priority=0,
        time_limit_s=None,
        grace_s=30.0,
        workdir="/home/ann",
        env=(),
        umask=0o027,
    )


def test_what_is_read_survives_being_stored():
    spec = read({"array": "0-9:3,20%2", "env": {"A": "b"}, "time": 5})
    assert JobSpec.from_document(spec.to_document()) == spec


def test_gpus_of_one_task_are_its_width():
    spec = read({"gpus": "1..4"})
    assert (spec.dimension, spec.width_min, spec.width_max) == (Dimension.GPUS, 1, 4)


def test_an_array_is_as_wide_as_it_may_run_at_once():
    spec = read({"array": "0-99%8", "gpus": 1})
    assert (spec.array, spec.width_min, spec.width_max) == (Array(IndexSet(((0, 99, 1),)), 8), 1, 8)


@pytest.mark.parametrize("empty", ["gpus", "tasks", "array", "cpus", "memory", "time", "grace", "env", "workdir"])
def test_a_field_left_empty_is_a_field_not_given(empty):
    assert read({empty: None}) == read({})


@pytest.mark.parametrize(
    ("workdir", "folder"),
    [("/tmp/x", "/tmp/x"), ("x", "/home/ann/x"), ("../bob", "/home/ann/../bob"), (".", "/home/ann")],
)
def test_a_folder_is_found_from_where_the_caller_stood(workdir, folder):
    assert read({"workdir": workdir}).workdir == folder


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py"], "train"),
        (["python", "-u", "/home/ann/my train.py", "--x"], "my-train"),
        (["/usr/bin/env", "bash", "./case.sh"], "case"),
        (["./run"], "run"),
        (["42"], "job"),
        (["..."], "job"),
        (["-"], "job"),
        (["../../etc/passwd"], "passwd"),
        (["x" * 100], "x" * 63),
        (["caf\udce9"], "caf"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_command(command, name):
    assert read({"command": command}).name == name


@pytest.mark.parametrize("name", ["a", "A1", "a.b-c_d", "9lives", "x" * 63])
def test_a_good_name_is_kept(name):
    assert read({}, metadata={"name": name}).name == name


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", ".hidden", "-x", "_x", "a b", "a\n", "x" * 64, "ä", "a\0", "\ud800", 5, ["a"], {"a": 1}]
)
def test_a_name_that_could_be_a_path_or_cannot_be_typed_is_refused(name):
    said = refusal(manifest({"command": ["true"]}, metadata={"name": name}))
    assert said.startswith("name ")
    assert said.endswith("a name is 1 to 63 letters, digits, '.', '_' or '-', and begins with a letter or digit")


def test_a_name_of_digits_is_refused_because_it_would_be_taken_for_an_id():
    said = refusal(manifest({"command": ["true"]}, metadata={"name": "12"}))
    assert said == "name '12' is a number and would be taken for a job's id; add a letter"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (manifest({"command": ["true"]}, specs={}), "the manifest has no field 'specs'; did you mean 'spec'? "),
        (
            manifest({"command": ["true"]}, metadata={"nmae": "x"}),
            "metadata has no field 'nmae'; did you mean 'name'? ",
        ),
        (
            manifest({"comand": ["true"]}),
            "spec has no field 'comand'; did you mean 'command'? (known: after, array, ",
        ),
        (manifest({"gpu": 1}), "spec has no field 'gpu'; did you mean 'gpus'? "),
        (manifest({"command": ["true"], "images": "x"}), "spec has no field 'images'"),
        (manifest({"command": ["true"], 5: "x"}), "spec has the field 5, which is no text; quote it"),
        (
            {"apiVersion": "swell/v1", "kind": "job"},
            "nothing here can run 'apiVersion: swell/v1, kind: job'; did you mean 'apiVersion: swell/v1, kind: Job'?",
        ),
        ({"apiVersion": ["x"], "kind": {}}, "nothing here can run \"apiVersion: ['x'], kind: {}\""),
        ({}, "it has neither apiVersion nor kind, so nobody knows what it is; write both at its top"),
    ],
)
def test_a_misspelt_field_is_refused_and_the_right_one_named(document, said):
    assert refusal(document).startswith(said)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("true", "the manifest must be a mapping of names to values, but is 'true'"),
        ([], "the manifest must be a mapping of names to values, but is a list: []"),
        (None, "the manifest must be a mapping of names to values, but is empty"),
        (manifest(None), "spec must be a mapping of names to values, but is empty"),
        (manifest([]), "spec must be a mapping of names to values, but is a list: []"),
        (manifest({"command": ["true"]}, metadata="x"), "metadata must be a mapping of names to values, but is "),
        (manifest({"command": ["true"]}, metadata=[]), "metadata must be a mapping of names to values, but is a list"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_with_what_was_found(document, said):
    assert refusal(document).startswith(said)


SPEC_REFUSALS = [
    ({"gpus": "2..1"}, "gpus: '2..1': the maximum 1 is below the minimum 2; write 1..2"),
    ({"tasks": "4..2"}, "tasks: '4..2': the maximum 2 is below the minimum 4; write 2..4"),
    ({"gpus": "0..4"}, "gpus 0..4: a range must start at 1 or more; write 1..4"),
    ({"tasks": 0}, "tasks: 0 is too few; a job has at least 1 task"),
    ({"gpus": -1}, "gpus: '-1' is neither a count nor a range; write 2 or 1..4"),
    ({"gpus": 1.5}, "gpus: '1.5' is neither a count nor a range; write 2 or 1..4"),
    ({"gpus": "1...4"}, "gpus: '1...4' is neither a count nor a range; write 2 or 1..4"),
    ({"gpus": True}, "gpus must be a number or text, but is true/false: True"),
    ({"gpus": [1, 4]}, "gpus must be a number or text, but is a list: [1, 4]"),
    ({"gpus": {"min": 1}}, "gpus must be a number or text, but is a mapping"),
    ({"gpus": 100_001}, "gpus: '100001': 100001 is more than any job may have (100000)"),
    (
        {"gpus": "1..2", "tasks": 2},
        "gpus 1..2 with tasks 2: a job is elastic in one dimension; give a fixed number of GPUs, or one task",
    ),
    ({"array": "0-9", "tasks": "2..3"}, "array with tasks 2..3: each task of an array is one process; leave out tasks"),
    (
        {"array": "0-9", "gpus": "1..2"},
        "array with gpus 1..2: the tasks of an array are alike; give one number of GPUs",
    ),
    ({"array": "x"}, "array: 'x' is not an array; write 0-99, 0-99%8 (8 at once), 1,3,5 or 0-100:10"),
    ({"array": "1,1"}, "array: array '1,1' names an index twice; every index may appear once"),
    ({"array": "0-9%0"}, "array: array '0-9%0': after % comes how many may run at once, 1 or more, as in 0-99%8"),
    ({"cpus": "many"}, "cpus: 'many' is not a number of CPUs; write 2, 0.5 or 500m"),
    ({"cpus": float("nan")}, "cpus: 'nan' is not a number of CPUs; write 2, 0.5 or 500m"),
    ({"memory": "8 parsecs"}, "memory: '8 parsecs' is not an amount of memory; write 512MiB, 8GiB or 1.5TiB"),
    ({"memory": -5}, "memory: '-5' is not an amount of memory; write 512MiB, 8GiB or 1.5TiB"),
    ({"time": "soon"}, "time: 'soon' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
    ({"time": 0}, "time: '0' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
    ({"grace": float("inf")}, "grace: 'inf' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
    ({"priority": 1_000_001}, "priority is 1000001; it must be from -1000000 to 1000000"),
    ({"priority": 1.5}, "priority must be a whole number from -1000000 to 1000000, but is a number: 1.5"),
    ({"priority": "high"}, "priority must be a whole number from -1000000 to 1000000, but is 'high'"),
    ({"priority": True}, "priority must be a whole number from -1000000 to 1000000, but is true/false: True"),
    ({"priority": "--5"}, "priority must be a whole number from -1000000 to 1000000, but is '--5'"),
    ({"priority": "²"}, "priority must be a whole number from -1000000 to 1000000, but is '²'"),
    ({"env": ["A=b"]}, "env must be a mapping of names to values, but is a list: ['A=b']"),
    ({"env": False}, "env must be a mapping of names to values, but is true/false: False"),
    ({"env": {"A=B": "c"}}, "env: 'A=B' cannot be a variable's name; write NAME: value"),
    ({"env": {"A\nB": "c"}}, "env: 'A\\nB' cannot be a variable's name; write NAME: value"),
    ({"env": {"": "c"}}, "env: '' cannot be a variable's name; write NAME: value"),
    ({"env": {"A": None}}, "env: the value of A must be text, but is empty; quote it"),
    ({"env": {"A": ["b"]}}, "env: the value of A must be text, but is a list: ['b']; quote it"),
    ({"env": {"A": "b\0"}}, "env: the value of A holds a null character, which no program can be given"),
    ({"env": {"A": "\ud800"}}, "env: the value of A is not valid Unicode text: '\\ud800'; write it as UTF-8"),
    ({"workdir": 5}, "workdir must be a folder's path, but is a number: 5; leave it out for the caller's own"),
    ({"workdir": ""}, "workdir must be a folder's path, but is ''; leave it out for the caller's own"),
    ({"workdir": "a\0"}, "workdir holds a null character, which no program can be given"),
    (
        {"command": "sh -c hi"},
        "command must be a list of words, but is text: write [sh, -c, 'sh -c hi'] to use a shell",
    ),
    ({"command": None}, "command must be a list of words, as in [python, train.py], but is empty"),
    ({"command": []}, "command must be a list of words, as in [python, train.py], but is a list: []"),
    ({"command": [""]}, "command: the first word, the program, is empty"),
    ({"command": ["a", ["b"]]}, "command: every word must be text, but one is a list: ['b']; quote it"),
    ({"command": ["a", True]}, "command: every word must be text, but one is true/false: True; quote it"),
    ({"command": ["a", None]}, "command: every word must be text, but one is empty; quote it"),
    ({"command": ["a\0b"]}, "command: a word holds a null character, which no program can be given"),
    ({"command": ["a", "\ud800"]}, "command: a word is not valid Unicode text: '\\ud800'; write it as UTF-8"),
    ({"command": ["a", "é" * 65_537]}, "command: a word is longer than 131072 bytes; put it into a file"),
]


@pytest.mark.parametrize(("spec", "said"), SPEC_REFUSALS, ids=[next(iter(spec)) for spec, _ in SPEC_REFUSALS])
def test_a_value_that_cannot_be_meant_is_refused_with_what_to_write(spec, said):
    assert refusal(manifest({"command": ["true"], **spec})) == said


# -- epochs, hours, resize, retries --------------------------------------------------------------------------------


def test_what_it_says_of_its_course_is_understood():
    course = {"epochs": "10", "hours": "2.5", "checkpointEvery": "10m", "resize": "immediate", "ownCurve": True}
    spec = read({**course, "retries": 3})
    assert (spec.epochs, spec.estimate_s, spec.resize, spec.retries) == (10, 9000.0, ResizeMode.IMMEDIATE, 3)
    assert (spec.saves_every_s, spec.has_own_curve) == (600.0, True)
    assert JobSpec.from_document(spec.to_document()) == spec


@pytest.mark.parametrize(
    "empty",
    [
        "epochs",
        "hours",
        "checkpointEvery",
        "resize",
        "ownCurve",
        "retries",
        "after",
        "notify",
        "notifyOn",
        "tensorboard",
        "checkpoints",
    ],
)
def test_what_it_does_not_say_of_its_course_is_the_default(empty):
    assert read({empty: None}) == read({})
    assert (read({}).epochs, read({}).estimate_s, read({}).resize, read({}).retries) == (
        None,
        None,
        ResizeMode.AT_CHECKPOINT,
        0,
    )


EPOCHS = "epochs must be a whole number from 1 to 1000000000, but is"
RESIZE = "resize must be one of at-checkpoint, immediate, either, never, but is"
HOURS = "is not a number of hours; write how long it will run by your guess, as in 2.5"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"epochs": 0}, "epochs is 0; it must be from 1 to 1000000000"),
        ({"epochs": 1.5}, f"{EPOCHS} a number: 1.5"),
        ({"epochs": [3]}, f"{EPOCHS} a list: [3]"),
        ({"checkpointEvery": "5s"}, "checkpointEvery: '5s' is shorter than 10 s; write for example 10m"),
        ({"checkpointEvery": "10"}, "checkpointEvery: '10' has no unit; write 90s, 30m, 2h or 7d"),
        (
            {"checkpointEvery": "nan"},
            "checkpointEvery: 'nan' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00",
        ),
        ({"hours": 0}, f"hours: '0' {HOURS}"),
        ({"hours": "-1"}, f"hours: '-1' {HOURS}"),
        ({"hours": "2h"}, f"hours: '2h' {HOURS}"),
        ({"hours": "nan"}, f"hours: 'nan' {HOURS}"),
        ({"hours": "inf"}, f"hours: 'inf' {HOURS}"),
        ({"hours": "1e999999999"}, f"hours: '1e999999999' {HOURS}"),
        ({"hours": "1000000000"}, f"hours: '1000000000' {HOURS}"),
        ({"ownCurve": "yes"}, "ownCurve must be true or false, but is 'yes'"),
        ({"hours": True}, "hours must be a number or text, but is true/false: True"),
        ({"resize": "at-checkpiont"}, f"{RESIZE} 'at-checkpiont'; did you mean at-checkpoint?"),
        ({"resize": "x"}, f"{RESIZE} 'x'"),
        ({"resize": ["never"]}, f"{RESIZE} a list: ['never']"),
        ({"resize": False}, f"{RESIZE} true/false: False"),
        ({"retries": -1}, "retries is -1; it must be from 0 to 1000"),
        ({"retries": 1001}, "retries is 1001; it must be from 0 to 1000"),
        ({"retries": "some"}, "retries must be a whole number from 0 to 1000, but is 'some'"),
    ],
)
def test_a_course_that_cannot_be_meant_is_refused(spec, said):
    assert refusal(manifest({"command": ["true"], **spec})) == said


# -- after ---------------------------------------------------------------------------------------------------------


def find_job(ref: str) -> int:
    known = {"prepare": 7, "7": 7, "12": 12, "20": 20}
    if ref not in known:
        raise NotFound(f"there is no job {ref!r}")
    return known[ref]


KNOWING = Context(workdir="/home/ann", find_job=find_job)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (12, (After(12),)),
        ("12", (After(12),)),
        ("12:end", (After(12, on_any_end=True),)),
        ("12:success", (After(12),)),
        ("prepare", (After(7),)),
        ("prepare:end", (After(7, on_any_end=True),)),
        ({"job": 12}, (After(12),)),
        ({"job": "prepare", "on": "end"}, (After(7, on_any_end=True),)),
        ([20, "prepare:end", {"job": 12, "on": "success"}], (After(7, on_any_end=True), After(12), After(20))),
        ([12, "12", {"job": 12}], (After(12),)),
        (["prepare", 7], (After(7),)),
        ([], ()),
    ],
)
def test_jobs_to_wait_for_are_given_by_id_or_name(after, found):
    spec = read_document(manifest({"command": ["true"], "after": after}), KNOWING)
    assert spec.after == found
    assert JobSpec.from_document(spec.to_document()) == spec


NO_JOB = "after must name a job, as in 12, prepare or {job: 12, on: end}, but is"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("missing", "after: there is no job 'missing'"),
        (999, "after: there is no job '999'"),
        ("prepare:ends", "after: on must be one of success, end, but is 'ends'; did you mean end?"),
        ({"job": 12, "on": True}, "after: on must be one of success, end, but is true/false: True"),
        ({"jbo": 12}, "after has no field 'jbo'; did you mean 'job'? (known: job, on)"),
        ({"on": "end"}, f"{NO_JOB} empty"),
        ("", f"{NO_JOB} ''"),
        (":end", f"{NO_JOB} ''"),
        (True, f"{NO_JOB} true/false: True"),
        (1.5, f"{NO_JOB} a number: 1.5"),
        ([[12]], f"{NO_JOB} a list: [12]"),
        (0, "after: '0' is no job's id; ids are whole numbers from 1 on"),
        (-3, "after: '-3' is no job's id; ids are whole numbers from 1 on"),
        ("9" * 19, f"after: '{'9' * 19}' is no job's id; ids are whole numbers from 1 on"),
        ([12, "12:end"], "after names job 12 twice, once for its end and once for its success; keep one"),
        (["prepare:end", 7], "after names job 7 twice, once for its end and once for its success; keep one"),
        ([12] * 1001, "after names 1001 jobs; at most 1000: let one job wait for them, and name it"),
    ],
)
def test_a_job_that_cannot_be_waited_for_is_refused(after, said):
    with pytest.raises(Rejected) as caught:
        read_document(manifest({"command": ["true"], "after": after}), KNOWING)
    assert str(caught.value) == said


def test_where_names_are_not_known_only_ids_are_understood():
    assert read({"after": "12:end"}).after == (After(12, on_any_end=True),)
    said = refusal(manifest({"command": ["true"], "after": "prepare"}))
    assert said == "after: 'prepare' is no id, and names are not known here; write the job's id"


def test_a_name_that_is_not_there_stays_the_kind_of_error_it_is():
    with pytest.raises(NotFound):
        read_document(manifest({"command": ["true"], "after": "missing"}), KNOWING)


# -- notify --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notify", "to"),
    [
        ("mail -s 'it is over' ann", ("mail", "-s", "it is over", "ann")),
        (["mail", "-s", "it is over", 5], ("mail", "-s", "it is over", "5")),
        ("https://example.org/hook?x=1", ("https://example.org/hook?x=1",)),
        (" http://[::1]:8080/a ", ("http://[::1]:8080/a",)),
        ("curl https://example.org", ("curl", "https://example.org")),
        (["https://example.org/hook"], ("https://example.org/hook",)),
        ("mailto:ann@example.org", ("mailto:ann@example.org",)),
        (["mailto:ann+jobs@example.org"], ("mailto:ann+jobs@example.org",)),
        ("mailto:ann", ("mailto:ann",)),
    ],
)
def test_who_is_told_is_a_command_an_address_or_a_recipient(notify, to):
    spec = read({"notify": notify})
    assert spec.notify == Notify(to, only_on_error=False)
    assert JobSpec.from_document(spec.to_document()) == spec


@pytest.mark.parametrize(("on", "only_on_error"), [("end", False), ("error", True), (None, False)])
def test_they_are_told_at_every_end_or_only_of_failures(on, only_on_error):
    assert read({"notify": "beep", "notifyOn": on}).notify == Notify(("beep",), only_on_error=only_on_error)


NO_NOTIFY = "notify must be a command, an http(s) address or mailto:, but is"
NO_HOST = "its host or its port is none"
NO_LETTERS = "it holds spaces, backslashes or letters that are not ASCII; write them in percent"


def no_address(text: str, why: str) -> str:
    return f"notify: {describe(text)} is no address that can be notified: {why}; write http://host/path or https://…"


def no_mail(text: str) -> str:
    return f"notify: {describe(text)} is no address of one person; write it as in mailto:ann@example.org"


BAD_ADDRESSES = {
    "ftp://example.org": "it does not begin with http:// or https://",
    "HTTP://example.org": "it does not begin with http:// or https://",
    "http://": NO_HOST,
    "http:///path": NO_HOST,
    "https://a b/": NO_LETTERS,
    "https://a:99999/": NO_HOST,
    "https://a:0/": NO_HOST,
    "https://[::1/": NO_HOST,
    "https://good.example\\@evil.example/": NO_LETTERS,
    "https://ann:secret@example.org/": "it holds a user or a password, which are not sent; leave them out",
    "https://example.org/a/%2e%2e/b": "its path climbs (. or ..); write the path that is meant",
}
BAD_RECIPIENTS = (
    "mailto:",
    "mailto:-oQ/tmp/x",
    "mailto:ann@example.org,ben@example.org",
    "mailto:ann@example.org?cc=ben@example.org",
    "mailto:ann@example.org\nBcc: ben@example.org",
    "mailto:ann@-x",
    "mailto:ann smith@example.org",
    "mailto:|sh@example.org",
    "MAILTO:ann@example.org",
)


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize(("text", "why"), BAD_ADDRESSES.items())
def test_an_address_is_looked_at_however_it_is_written(text, why, is_list):
    """A list of one word was taken for an address, too, and nobody looked at it."""
    assert refusal(manifest({"command": ["true"], "notify": [text] if is_list else text})) == no_address(text, why)


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize("text", BAD_RECIPIENTS)
def test_a_recipient_is_one_name_and_brings_no_headers_and_no_options(text, is_list):
    assert refusal(manifest({"command": ["true"], "notify": [text] if is_list else text})) == no_mail(text)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"notify": ""}, f"{NO_NOTIFY} ''"),
        ({"notify": 5}, f"{NO_NOTIFY} a number: 5"),
        ({"notify": True}, f"{NO_NOTIFY} true/false: True"),
        ({"notify": {"url": "x"}}, f"{NO_NOTIFY} a mapping"),
        ({"notify": []}, "notify: command must be a list of words, as in [python, train.py], but is a list: []"),
        ({"notify": ["a", None]}, "notify: command: every word must be text, but one is empty; quote it"),
        ({"notify": "''"}, "notify: command: the first word, the program, is empty"),
        ({"notify": "a\0"}, "notify: command: a word holds a null character, which no program can be given"),
        (
            {"notify": "mail 'ann"},
            'notify: "mail \'ann" cannot be split into words: No closing quotation; close the quotation mark',
        ),
        ({"notifyOn": "end"}, "notifyOn needs notify, which says who is told; give both, or neither"),
        (
            {"notify": "beep", "notifyOn": "errors"},
            "notifyOn must be one of end, error, but is 'errors'; did you mean error?",
        ),
        ({"notify": "beep", "notifyOn": True}, "notifyOn must be one of end, error, but is true/false: True"),
    ],
)
def test_somebody_who_cannot_be_told_is_refused(spec, said):
    assert refusal(manifest({"command": ["true"], **spec})) == said


# -- folders -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["tensorboard", "checkpoints"])
def test_folders_are_found_from_the_jobs_own_folder_and_made_absolute(field):
    assert getattr(read({field: "logs"}), field) == "/home/ann/logs"
    assert getattr(read({field: "logs", "workdir": "runs/1"}), field) == "/home/ann/runs/1/logs"
    assert getattr(read({field: "/data/logs", "workdir": "runs/1"}), field) == "/data/logs"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"tensorboard": 5},
            "tensorboard must be a folder's path, but is a number: 5; leave it out for no TensorBoard",
        ),
        ({"tensorboard": True}, "tensorboard must be a folder's path, but is true/false: True; leave it out for no Te"),
        (
            {"checkpoints": ""},
            "checkpoints must be a folder's path, but is ''; leave it out for one that Swell m",
        ),
        (
            {"checkpoints": ["x"]},
            "checkpoints must be a folder's path, but is a list: ['x']; leave it out for one that",
        ),
        ({"checkpoints": "a\0"}, "checkpoints holds a null character, which no program can be given"),
    ],
)
def test_a_folder_that_cannot_be_meant_is_refused(spec, said):
    assert refusal(manifest({"command": ["true"], **spec})).startswith(said)


def test_words_and_values_that_are_not_utf8_are_passed_on_as_they_are():
    spec = read({"command": ["cat", "caf\udce9"], "env": {"A": "\udcff"}})
    assert spec.roles[0].command == ("cat", "caf\udce9")
    assert spec.env == (("A", "\udcff"),)


def test_a_huge_value_is_not_repeated_in_full():
    assert len(refusal(manifest({"command": ["true"], "priority": ["x" * 100_000] * 1000}))) < 200


def test_a_launcher_is_named_and_the_command_stays_as_it_was_written():
    spec = read({"command": ["train.py", "-x"], "launcher": "torchrun", "gpus": "1..4"})
    assert (spec.launcher, spec.roles[0].command, spec.name) == (Launcher.TORCHRUN, ("train.py", "-x"), "train.py")
    assert JobSpec.from_document(spec.to_document()) == spec
    of_before = {name: value for name, value in read({}).to_document().items() if name != "launcher"}
    assert JobSpec.from_document(of_before).launcher is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"launcher": "torchrum"},
            "launcher must be one of torchrun, accelerate, mpi, but is 'torchrum'; did you mean torchrun?",
        ),
        (
            {"launcher": "mpi", "array": "0-3"},
            (
                "launcher mpi with array: each task of an array is alone, and mpirun finds the slots of its one task "
                "without it; leave launcher out"
            ),
        ),
        (
            {"launcher": "accelerate", "command": ["python", "-O", "train.py"]},
            (
                "command: accelerate starts a script (train.py), a module (python -m package.train) or a program, but "
                "the command has -O after python; leave out the options of python"
            ),
        ),
    ],
)
def test_what_no_launcher_can_start_is_refused_when_it_is_submitted(spec: dict[str, Any], message: str):
    assert refusal(manifest({"command": ["true"], **spec})) == message
