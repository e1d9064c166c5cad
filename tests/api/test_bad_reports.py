"""Reports that are refused, without any harm: not theirs, not true, no checkpoint, too much."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from api.service import JOB_SECRET, USER, WAIT_S, WORKER, Answer
from api.trainee import Trainee
from swell.controller.reporting import make_token
from swell.model.job import AttemptId

# -- whose token ---------------------------------------------------------------------------------------------

ROUTES = (("POST", "/report"), ("GET", "/control"), ("POST", "/trainer-status"))


def refusals(trainee: Trainee, token: str) -> set[tuple[int, str, str]]:
    bodies = {"/report": {"rank": 0, "epochs_done": 5}, "/trainer-status": {"trainerStatus": {}}}
    return {trainee.ask(method, path, bodies.get(path), token=token).error for method, path in ROUTES}


def test_another_jobs_token_is_refused(unharmed):
    other = make_token(JOB_SECRET, AttemptId(unharmed.job + 1, 1), time.time() + 3600)
    words = f"this token is only for attempt {unharmed.job + 1}.1"
    assert refusals(unharmed, other) == {(403, "Denied", words)}


def test_so_is_another_attempts(unharmed):
    other = make_token(JOB_SECRET, AttemptId(unharmed.job, 2), time.time() + 3600)
    assert refusals(unharmed, other) == {(403, "Denied", f"this token is only for attempt {unharmed.job}.2")}


@pytest.mark.parametrize("how", ["forged", "expired", "cut", "nonsense"])
def test_a_token_that_is_not_good_is_refused(unharmed, how):
    whose = AttemptId(unharmed.job, 1)
    tokens = {
        "forged": make_token("another secret", whose, time.time() + 3600),
        "expired": make_token(JOB_SECRET, whose, time.time() - 1),
        "cut": unharmed.token[:-1],
        "nonsense": "swj.....",
    }
    words = "the token is not one of this server's jobs, or has expired; send $SWELL_TOKEN as it is"
    assert refusals(unharmed, tokens[how]) == {(401, "Denied", words)}


@pytest.mark.parametrize("token", [USER, WORKER])
def test_users_and_workers_do_not_report(unharmed, token):
    words = "this token does not allow this request: only a job reports on its attempts"
    assert refusals(unharmed, token) == {(403, "Denied", words)}


def test_without_a_token_nothing_is_reported(unharmed):
    answer = unharmed.service.ask("POST", f"/attempts/{unharmed.job}.1/report", {"rank": 0}, token=None)
    assert answer.error == (401, "Denied", "a job's token is needed: send 'Authorization: Bearer $SWELL_TOKEN'")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/jobs"), ("POST", "/jobs"), ("POST", "/server/stop"), ("GET", "/nodes")]
)
def test_a_jobs_token_opens_nothing_else(unharmed, method, path):
    words = "this token belongs to a job: it can only report on its own attempt"
    assert unharmed.service.ask(method, path, token=unharmed.token).error == (403, "Denied", words)


def test_nor_can_it_change_its_own_job(unharmed):
    for word in ("cancel", "hold", "release", "requeue", "scale"):
        answer = unharmed.service.ask("POST", f"/jobs/{unharmed.job}/{word}", token=unharmed.token)
        assert answer.status == 403, word


# -- what cannot be true -------------------------------------------------------------------------------------


def test_epochs_do_not_go_backwards(trainee):
    assert trainee.report(epochs_done=5).status == 200
    before = trainee.shown()
    assert trainee.report(epochs_done=4).error == (
        422,
        "Rejected",
        "epochs go backwards: 4 done, but 5 were reported before; a restarted job goes on from EPOCHS_DONE",
    )
    assert trainee.shown() == before


@pytest.mark.parametrize("field", ["epochs_done", "epochs_total", "memory_mib"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_is_refused(unharmed, field, text):
    answer = unharmed.report(f'{{"rank": 0, "{field}": {text}}}'.encode())
    status, kind, words = answer.error
    shown = {"NaN": "nan", "1e999": "inf"}.get(text, text.lower().replace("infinity", "inf"))
    assert (status, kind, words) == (
        422,
        "Rejected",
        f"{field} must be a finite number, but is {shown}",
    )


@pytest.mark.parametrize(
    "body",
    [
        '{"rank": 0, "epochs": [[1, NaN]]}',
        '{"rank": 0, "epochs": [[NaN, 1]]}',
        '{"rank": 0, "steps": [1, Infinity]}',
        '{"rank": 0, "metrics": {"loss": NaN}}',
        '{"rank": 0, "metrics": {"loss": -Infinity}}',
        '{"rank": 0, "checkpoint": {"epochs_done": NaN}}',
        '{"rank": 0, "checkpoint": {"epochs_done": 1, "at": Infinity}}',
        '{"rank": NaN}',
        '{"rank": 0, "begun": Infinity}',
    ],
)
def test_nor_is_it_taken_deeper_inside(unharmed, body):
    assert unharmed.report(body.encode()).status == 422


WRONG = ([], {}, "x", None, -1, 1e30, True, [[]], "1; drop", 0.5)


@pytest.mark.parametrize(
    ("field", "fine"),
    [
        ("rank", (True,)),
        ("begun", (None, True)),
        ("epochs_done", (None, True, 0.5)),
        ("epochs_total", (None, True, 0.5)),
        ("epochs", ([],)),
        ("steps", (None,)),
        ("memory_mib", (None, True, 0.5)),
        ("checkpoint", (None,)),
        ("metrics", ({},)),
        ("yielding", (True,)),
        ("ready_to_stop", (True,)),
    ],
)
def test_wrong_types_are_refused_with_the_field(unharmed, field, fine):
    for value in WRONG:
        if any(value is good or (value == good and type(value) is type(good)) for good in fine):
            continue
        status, kind, words = unharmed.report({"rank": 0, field: value}).error
        assert (status, kind, field in words.partition(";")[0]) == (422, "Rejected", True), (value, words)


NO_NUMBER = "must be a number, but is"
NO_INTEGER = "must be a whole number, but is"
FIELDS = (
    "rank, at, begun, epochs_done, epochs_total, epochs, steps, steps_per_epoch, memory_mib, checkpoint, metrics, "
    "yielding, ready_to_stop"
)
KNOWN, SORTED = f"known: {FIELDS}", f"known: {', '.join(sorted(FIELDS.split(', ')))}"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rank": -1}, "rank must be at least 0, but is -1"),
        ({"begun": 1.5}, f"begun {NO_INTEGER} 1.5"),
        ({"epochs_done": "many"}, f"epochs_done {NO_NUMBER} 'many'"),
        ({"epochs": [[1]]}, f"the request needs the field 'epochs.0.1'; {KNOWN}"),
        ({"epochs": [[1, -2]]}, "epochs.0.1 must be at least 0, but is -2"),
        ({"checkpoint": {}}, f"the request needs the field 'checkpoint.epochs_done'; {KNOWN}"),
        ({"metrics": {"loss": "low"}}, f"metrics.loss {NO_NUMBER} 'low'"),
        ({"metrics": {"": 1}}, "a name in metrics must be at least 1 character long, but is ''"),
        ({"epoch_done": 1}, f"the request has no field 'epoch_done'; did you mean 'epochs_done'? ({SORTED})"),
        ({"loss": 0.1}, f"the request has no field 'loss'; {SORTED}"),
    ],
)
def test_the_message_says_what_is_wrong_and_where(unharmed, fields, words):
    assert unharmed.report(**fields).error == (422, "Rejected", words)


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"null", b"\xff\xfe", b'{"rank": 0', b"[" * 60_000])
def test_what_is_no_report_at_all_is_refused(unharmed, body):
    assert unharmed.report(body).status in {400, 422}


def test_at_most_200_epochs_and_50_metrics_come_in_one_report(unharmed):
    many = [[n, 1.0] for n in range(1, 202)]
    assert unharmed.report(epochs=many).status == 422
    assert unharmed.report(metrics={f"m{n}": 0.0 for n in range(51)}).status == 422


# -- checkpoints that are none -------------------------------------------------------------------------------


def outside(trainee: Trainee, path: str) -> str:
    return f"the checkpoint {path!r} is outside the job's folder {trainee.folder.resolve()}; write it there"


def refused_checkpoint(trainee: Trainee, path: str) -> str:
    status, kind, words = trainee.report(checkpoint={"epochs_done": 1, "path": path}).error
    assert (status, kind) == (422, "Rejected")
    return words


@pytest.mark.parametrize("path", ["nowhere", "a/b/c", "x" * 300, "x" * 4096, "one/" * 1000, "file/below"])
def test_one_that_does_not_exist(unharmed, path):
    """A name longer than a file's can be was answered as a bug of ours."""
    (unharmed.folder / "file").write_bytes(b"")
    words = f"the checkpoint {path!r} does not exist; make it durable first, then report it"
    assert refused_checkpoint(unharmed, path) == words


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../other/file", "a/../../other", "..", ".", "", "/", "/proc/self/environ"]
)
def test_one_that_lies_elsewhere(unharmed, path):
    assert refused_checkpoint(unharmed, path) == outside(unharmed, path)


def test_one_that_a_link_leads_elsewhere(unharmed):
    (unharmed.folder / "link").symlink_to("/etc")
    (unharmed.folder / "chain").symlink_to("link/passwd")
    assert refused_checkpoint(unharmed, "link/passwd") == outside(unharmed, "link/passwd")
    assert refused_checkpoint(unharmed, "chain") == outside(unharmed, "chain")


def test_a_link_that_leads_to_itself(unharmed):
    (unharmed.folder / "loop").symlink_to("loop")
    assert refused_checkpoint(unharmed, "loop").startswith("the checkpoint 'loop' does not exist")


def test_one_with_a_null_character(unharmed):
    words = "the checkpoint's path contains a null character, which a file name cannot have"
    assert refused_checkpoint(unharmed, "a\0b") == words


def test_one_whose_path_is_longer_than_any_can_be(unharmed):
    status, kind, words = unharmed.report(checkpoint={"epochs_done": 1, "path": "x" * 4097}).error
    assert (status, kind, words[:63]) == (
        422,
        "Rejected",
        "checkpoint.path must be at most 4096 characters long, but is 'x",
    )


def test_one_with_less_than_the_last(trainee):
    assert trainee.report(checkpoint={"epochs_done": 5}).status == 200
    words = "the checkpoint holds 4 epochs, but one of 5 was reported before"
    assert trainee.report(checkpoint={"epochs_done": 4}).error == (422, "Rejected", words)


# -- too much ------------------------------------------------------------------------------------------------

TOO_LARGE = (413, "TooLarge", "the request has more than 65536 bytes; send less at once")


def test_a_body_that_is_too_large_is_refused(unharmed):
    assert unharmed.report(b" " * (64 * 1024 + 1)).error == TOO_LARGE


def test_ten_megabytes_that_say_so_are_refused_before_they_are_read(unharmed):
    with socket.create_connection(("127.0.0.1", unharmed.service.port), timeout=10) as raw:
        raw.sendall(_head(unharmed) + b"Content-Length: 10000000\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_ten_megabytes_that_do_not_say_so_are_cut_off(unharmed):
    with socket.create_connection(("127.0.0.1", unharmed.service.port), timeout=10) as raw:
        raw.sendall(_head(unharmed) + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(2):  # a little more than is allowed; it need not read on
            raw.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        response = http.client.HTTPResponse(raw)
        response.begin()
        assert Answer(response.status, response.headers, response.read()).error == TOO_LARGE


def _head(trainee: Trainee) -> bytes:
    return (
        f"POST /api/v1/attempts/{trainee.job}.1/report HTTP/1.1\r\nHost: {trainee.service.host}\r\n"
        f"Authorization: Bearer {trainee.token}\r\nContent-Type: application/json\r\n"
    ).encode()


def test_more_than_20_reports_a_second_are_too_many_and_a_moment_later_it_may_go_on(trainee):
    """What is refused for another reason counts as well: it costs as much."""
    bad = {"epochs_done": 1, "path": "nowhere"}
    began = time.monotonic()
    answers = [trainee.report(checkpoint=bad) for _ in range(150)]
    took_s = time.monotonic() - began
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) >= 150 - 40 - 20 * took_s - 1
    words = "more than 20 reports a second; send the newest state less often"
    assert {answer.error for answer in refused} <= {(429, "Unavailable", words)}
    until_taken(trainee)


def until_taken(trainee: Trainee) -> None:
    end = time.monotonic() + WAIT_S
    while trainee.report().status != 200:
        assert time.monotonic() < end, "nothing is taken any more"


def test_one_job_that_reports_too_often_is_no_reason_to_refuse_another(service, trainee):
    for _ in range(60):
        trainee.report(checkpoint={"epochs_done": 1, "path": "nowhere"})
    other = Trainee(service, name="quiet")
    assert other.report(epochs_done=1).status == 200
    service.worker.end(other.job)
    until_taken(trainee)
