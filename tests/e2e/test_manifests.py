"""Kubernetes manifests through `swell submit -f`, run as processes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from server import Server

from .training import EXAMPLES

pytestmark = pytest.mark.slow

JOBSET = EXAMPLES / "kubernetes" / "jobset.yaml"


def submit(server: Server, file: Path) -> int:
    done = server.swell("submit", "-f", str(file))
    assert done.code == 0, done
    return int(done.stdout)


def test_the_pods_of_a_jobset_meet_and_know_who_they_are(server):
    job = submit(server, JOBSET)
    server.until(job, "succeeded")
    assert server.swell("logs", "--rank", "0", str(job)).stdout.splitlines() == [
        "job 0 of 2, pod 0, 1 overall",
        "job 0 of 2, pod 1, 1 overall",
        "job 1 of 2, pod 0, 2 overall",
        "job 1 of 2, pod 1, 2 overall",
    ]


def test_a_suspended_jobset_waits_until_it_is_released(server, tmp_path):
    file = tmp_path / "suspended.yaml"
    file.write_text(JOBSET.read_text().replace("spec:\n  failurePolicy", "spec:\n  suspend: true\n  failurePolicy", 1))
    job = submit(server, file)
    assert server.until(job, "held")["reason"]["code"] == "Held"
    assert server.swell("release", str(job)).code == 0
    server.until(job, "succeeded")


def test_what_has_no_effect_is_said_and_keeps_nothing_from_running(server, tmp_path):
    file = tmp_path / "picky.yaml"
    pod = (EXAMPLES / "kubernetes" / "pod.yaml").read_text()
    rules = "spec:\n  nodeSelector: {gpu: a100}\n  priorityClassName: high\n"
    file.write_text(pod.replace("spec:\n", rules, 1))
    done = server.swell("submit", "--wait", "-f", str(file))
    said = "spec.priorityClassName 'high' is not known here and has no effect; write priority: 100"
    assert (done.code, done.stderr.splitlines()[0]) == (0, f"swell: {file}: {said}"), done
    assert server.swell("show", "-o", "json", done.stdout.split()[0]).json["spec"]["notes"] == [
        said,
        "this machine runs processes, not pods, so these fields have no effect: image, nodeSelector",
    ]


def in_line(name: str, after: str) -> str:
    return f"apiVersion: swell/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{command: ['true'], after: {after}}}\n"


def test_jobs_of_one_command_wait_for_each_other(server, tmp_path):
    """The name of the document before was unknown: there is no job."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(in_line("sib-a", "null") + "---\n" + in_line("sib-b", "sib-a"))
    second.write_text(in_line("sib-c", "['sib-a:end', sib-b]"))
    files = ("-f", str(first), "-f", str(second))
    dry = server.swell("submit", "--dry-run", *files)
    printed = [one["spec"].get("after") for one in yaml.safe_load_all(dry.stdout)]
    assert (dry.code, printed) == (0, [None, ["sib-a"], ["sib-b", "sib-a:end"]])
    done = server.swell("submit", *files)
    assert (done.code, done.stderr) == (0, "")
    a, b, c = map(int, done.stdout.split())
    assert [[one["job"] for one in server.client().show(job)["spec"]["after"]] for job in (a, b, c)] == [
        [],
        [a],
        [a, b],
    ]
    assert server.until(c, "succeeded")["started_at"] >= server.until(b, "succeeded")["ended_at"]


def test_the_same_file_twice_is_refused(server, tmp_path, nothing_changes):
    """`-f in.yaml -f in.yaml` made one job, `-f in.yaml -f ./in.yaml` two."""
    (tmp_path / "in.yaml").write_text(in_line("twice", "null"))
    again = "; name each file once, or submit it a second time with its own command\n"
    for second, said in (("in.yaml", ""), ("./in.yaml", " (as in.yaml and ./in.yaml)")):
        done = server.swell("submit", "-f", "in.yaml", "-f", second, cwd=tmp_path)
        assert (done.code, done.stdout, done.stderr) == (2, "", f"swell: -f names in.yaml twice{said}{again}")
