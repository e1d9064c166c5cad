"""Other systems' words on a server for everybody: whose jobs do they mean?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.doors.foreign import Foreign
from box.machine import Machine, Person
from server import Result

pytestmark = pytest.mark.slow

WAITS = ("sh", "-c", 'echo "$JOB_UUID $SWELL_DOOR"; while :; do sleep 1; done')


@pytest.fixture(autouse=True)
def _nothing_is_left(box: Machine) -> Iterator[None]:
    """Each story has the machine's four GPUs to itself."""
    yield
    for job in box.client().cancel_all(all_users=True, grace_s=0):
        job.wait(timeout_s=30)


def names(done: Result) -> list[str]:
    """The second column of a table, without its title."""
    assert done.code == 0, done
    return [line.split()[1] for line in done.stdout.splitlines()[1:]]


def test_the_schedulers_state_is_ones_own_and_everybodys_when_asked_for(box: Machine) -> None:
    """On a private server both are the same, so nobody saw that on a box `--all_users` showed one's own only."""
    anna, ben, _ = box.people
    for person in (anna, ben):
        box.until(person.start("--name", f"of-{person.name}", "--", *WAITS), "running")
    own, all_of_them = [f"of-{anna.name}"], [f"of-{anna.name}", f"of-{ben.name}"]
    assert names(anna.beside("scheduler-state")) == own
    assert "USER" in anna.beside("scheduler-state", "--all_users").stdout.splitlines()[0]
    assert names(anna.beside("scheduler-state", "--all_users")) == all_of_them
    assert names(anna.beside("scheduler-state", "--all_users", "--extended")) == all_of_them
    assert names(anna.beside("scheduler-state", "--all_users", "--nlast", "1")) == all_of_them[1:]
    assert names(anna.beside("scheduler-situation")) == own
    assert names(anna.beside("scheduler-situation", "--all")) == all_of_them
    assert names(anna.beside("scheduler-situation", "--all", "--nlast", "1")) == all_of_them[1:]


def test_an_administrator_who_names_no_job_scales_none_of_others(box: Machine) -> None:
    """`genai-manager scale`, typed by an administrator, stopped somebody else's job at once."""
    anna, ben, cleo = box.people
    small = ben.start("--gpus", "2", "--", *WAITS)
    box.until(small, "running")
    wide = anna.start("--gpus", "1..4", "--name", "wide", "--", *WAITS)
    assert box.until(wide, "running")["width"] == 2
    ben.swell("cancel", str(small))
    box.until(small, "cancelled")
    for admin in (cleo, Person("root", box)):
        nobody = admin.beside("genai-manager", "scale")
        assert (nobody.code, nobody.stdout) == (1, "Did not scale\n"), nobody
        named = admin.beside("genai-manager", "scale", "--name", "wide")
        assert (named.code, named.stderr) == (2, "swell: there is no job 'wide'; GET /get_all_jobs lists them\n")
    assert anna.job(wide)["attempts"][0]["outcome"] is None
    assert anna.beside("genai-manager", "scale").stdout == "Scaled\n"
    box.until_true(wide, lambda job: (job["state"], job["width"]) == ("running", 4))


def test_an_opened_port_acts_for_one_user_and_others_have_their_jobs_own_addresses(box: Machine) -> None:
    anna, ben, _ = box.people
    root = Person("root", box)
    refused = root.swell("door", "open", "kubeprofiler", "--port", "0")
    assert (refused.code, "(swell door open --as USER)" in refused.stderr) == (2, True), refused
    opened = root.swell("door", "open", "kubeprofiler", "--port", "0", "--as", anna.name)
    assert opened.code == 0, opened
    assert f"everyone on this machine can use it as user {anna.name}" in opened.stderr
    told = [box.until_output(person.start("--", *WAITS), b"\n").decode().split() for person in (anna, ben)]
    port = Foreign(opened.stdout.strip())
    assert [port.ask("GET", f"/has_to_stop/{uuid}")[0] for uuid, _ in told] == [200, 404]
    assert [Foreign(door).raw("GET", f"/has_to_stop/{uuid}") for uuid, door in told] == [(200, b"0"), (200, b"0")]
    assert root.swell("door", "close", "--port", opened.stdout.strip().rpartition(":")[2]).code == 0


def test_a_job_that_was_submitted_over_http_finds_the_library_wherever_the_service_is_installed(box: Machine) -> None:
    """It was told of a folder below /root, which no user may enter, and to run a `python` that Debian does not have."""
    anna, _, _ = box.people
    script = anna.home / "imports.py"
    script.write_text("import kubernetesdlprofile\nprint(kubernetesdlprofile.__file__)\n")
    opened = Person("root", box).swell("door", "open", "kubeprofiler", "--port", "0", "--as", anna.name)
    asked = {"jobName": "imports", "scriptPath": script.name, "directoryToMount": str(anna.home)}
    status, told = Foreign(opened.stdout.strip()).ask("POST", "/submit", asked)
    assert status == 201, told
    assert box.until_output(told["id"], b"\n").decode().startswith(f"{box.state.library}/library-")
