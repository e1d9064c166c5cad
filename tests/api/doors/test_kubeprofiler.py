"""kubeprofiler's endpoints, over the wire."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from api.service import Service
from swell.api.doors.submission import PATH

from .foreign import Foreign, cancel, of_job, of_user, running


class Rank:
    """One process of a training, as the original library speaks for it."""

    def __init__(self, service: Service, job: int, address: Foreign | None = None) -> None:
        self.uuid = f"{service.store.id[:8]}-{job}"
        self._address = address or of_job(service, job)

    def ask(self, method: str, word: str, body: object = None) -> tuple[int, Any]:
        return self._address.ask(method, f"/{word}/{self.uuid}", body)

    def has_to_stop(self) -> str:
        status, data = self._address.raw("GET", f"/has_to_stop/{self.uuid}")
        assert status == 200, data
        return data.decode()

    def profile(self, iternum: int, meandur: float = 0.5, gpumem: float = 0, **more: Any) -> None:
        body = {"jobid": self.uuid, "timestamp": "2026-11-16T10:00:00", "iternum": iternum, "nodelist": "box"}
        body |= {"numgpu": 1, "rank": "0", "meandur": meandur, "gpumem": gpumem, **more}
        status, answer = self.ask("POST", "profiling", body)
        assert status == 200, answer

    def end_epoch(self, done: int) -> None:
        status, answer = self.ask("POST", "end_epoch", {"done": done})
        assert status == 200, answer


def shown(service: Service, job: int) -> dict[str, Any]:
    return dict(service.ask("GET", f"/jobs/{job}/show").json)


def durable(service: Service, job: int) -> float:
    training = shown(service, job)["training"]
    checkpoint = training and training["checkpoint"]
    return float(checkpoint["epochs_done"]) if checkpoint else 0.0


def test_an_epoch_is_durable_when_its_script_comes_back_to_ask(service):
    with running(service, "train", gpus="1", epochs=10) as job:
        rank = Rank(service, job)
        assert rank.has_to_stop() == "0"
        rank.end_epoch(1)
        assert (shown(service, job)["progress"]["epochs_done"], durable(service, job)) == (1.0, 0.0)
        assert rank.has_to_stop() == "0"
        assert durable(service, job) == 1.0


def test_or_when_it_profiles_a_step_of_the_next_epoch(service):
    with running(service, "train", gpus="1", epochs=10) as job:
        rank = Rank(service, job)
        rank.profile(10, epochDur=5.0)
        rank.end_epoch(1)
        rank.profile(10)  # of its last step, from a thread that was late
        assert durable(service, job) == 0.0
        rank.profile(15)
        assert durable(service, job) == 1.0


def test_with_several_ranks_an_epoch_is_durable_when_all_of_them_have_come_back(service):
    """Only one of them saves, and the others do not wait for it."""
    with running(service, "train", gpus="2", epochs=10) as job:
        first, second = Rank(service, job), Rank(service, job)
        for done in (1, 2):
            first.end_epoch(done)
            second.end_epoch(done)
            second.has_to_stop()
            assert durable(service, job) == done - 1.0
            first.has_to_stop()
            expected = 2.0 if done == 2 else 0.0  # how many there are, the first epoch has told
            assert durable(service, job) == expected


def test_at_the_latest_it_is_durable_when_the_next_one_ends(service):
    with running(service, "train", gpus="2", epochs=10) as job:
        rank = Rank(service, job)
        rank.end_epoch(1)
        rank.end_epoch(2)
        assert durable(service, job) == 1.0


def test_a_job_that_is_asked_to_yield_has_to_stop_and_its_exit_0_is_a_yield(service):
    with running(service, "train", gpus="1..2", epochs=10) as job:
        rank = Rank(service, job)
        for done in (1, 2):
            assert rank.has_to_stop() == "0"
            rank.profile(10 * done, epochDur=1.0)
            rank.end_epoch(done)
        assert rank.has_to_stop() == "0"  # the third epoch begins
        assert service.ask("POST", f"/jobs/{job}/scale", {"width": 1}).status == 200
        service.until_true(job, lambda _: shown(service, job)["attempts"][0]["asked"] is not None)
        assert rank.has_to_stop() == "0"  # another rank begins the same epoch: they all go on to its end
        rank.end_epoch(3)
        assert rank.has_to_stop() == "1"
        service.worker.gone(job, 0)
        launch = service.worker.until_asked(job, 2)
        assert (len(launch["lanes"][0]["devices"]), launch["own"]["EPOCHS_DONE"]) == (1, "3")
        assert shown(service, job)["lost_gpu_seconds"] == 0.0
        service.worker.begin(job, attempt=2)


def test_its_exit_0_is_a_yield_too_where_nobody_has_said_how_many_epochs_there_are(service):
    """Without --max_epochs it counted as done, and what was left of the training was never run."""
    with running(service, "train", gpus="1..2") as job:
        rank = Rank(service, job)
        for done in (1, 2):
            assert rank.has_to_stop() == "0"
            rank.end_epoch(done)
        assert rank.has_to_stop() == "0"
        assert service.ask("POST", f"/jobs/{job}/scale", {"width": 1}).status == 200
        service.until_true(job, lambda _: shown(service, job)["attempts"][0]["asked"] is not None)
        rank.end_epoch(3)
        assert rank.has_to_stop() == "1"
        service.worker.gone(job, 0)
        assert service.worker.until_asked(job, 2)["own"]["EPOCHS_DONE"] == "3"
        service.worker.begin(job, attempt=2)


def test_profiles_are_what_the_planner_measures_by(service):
    with running(service, "train", gpus="1", epochs=10) as job:
        rank = Rank(service, job)
        rank.profile(100, meandur=0.5, gpumem=900)
        rank.profile(200, meandur=0.5, gpumem=800, epochDur=4.0)
        rank.end_epoch(1)
        assert shown(service, job)["training"]["profile"] == [
            {
                "width": 1,
                "nodes": 1,
                "epochs": 1,
                "epoch_s": 4.0,
                "is_warm": False,
                "steps": 200,
                "step_s": 0.5,
                "memory_mib": 900.0,
                "steps_per_epoch": None,
            }
        ]


def test_the_end_of_training_makes_the_last_epoch_durable(service):
    with running(service, "train", gpus="1", epochs=1) as job:
        rank = Rank(service, job)
        rank.end_epoch(1)
        assert rank.ask("POST", "signal_end") == (200, {"message": "end taken"})
        assert durable(service, job) == 1.0


def test_a_user_may_report_for_their_own_jobs(service):
    with running(service, "train", gpus="1") as job:
        rank = Rank(service, job, of_user(service, "kubeprofiler"))
        rank.end_epoch(1)
        stranger = Rank(service, job, of_user(service, "kubeprofiler", user="bob"))
        assert stranger.ask("POST", "end_epoch", {"done": 2})[0] == 404
        assert stranger.ask("GET", "has_to_stop")[0] == 404


def test_a_job_cannot_speak_for_another(service):
    with running(service, "one") as one, running(service, "two") as two:
        forged = Rank(service, two, of_job(service, one))
        for method, word in (
            ("GET", "has_to_stop"),
            ("POST", "end_epoch"),
            ("POST", "profiling"),
            ("POST", "signal_end"),
        ):
            assert forged.ask(method, word, {"done": 1} if method == "POST" else None)[0] == 404, word


@pytest.mark.parametrize("uuid", ["x", "00000000-1", "{store}-999999", "{store}-", "{store}-1x", "{store}--1"])
def test_a_job_that_is_not_there_is_a_404(service, uuid):
    uuid = uuid.format(store=service.store.id[:8])
    address = of_user(service, "kubeprofiler")
    assert address.ask("GET", f"/has_to_stop/{uuid}")[0] == 404
    assert address.ask("POST", f"/end_epoch/{uuid}", {"done": 1})[0] == 404


@pytest.mark.parametrize(
    ("word", "body"),
    [
        ("end_epoch", {}),
        ("end_epoch", {"done": 0}),
        ("end_epoch", {"done": "two"}),
        ("end_epoch", {"done": 1.5}),
        ("profiling", {"iternum": 1}),
        ("profiling", {"iternum": 1, "meandur": "slow", "gpumem": 0}),
        ("profiling", {"iternum": 1, "meandur": float("nan"), "gpumem": 0}),
        ("profiling", {"iternum": 1, "meandur": 1, "gpumem": -5}),
    ],
)
def test_what_cannot_be_meant_is_a_400_and_changes_nothing(service, word, body):
    with running(service, "train") as job:
        before = shown(service, job)
        assert Rank(service, job).ask("POST", word, body)[0] == 400
        assert shown(service, job) == before


def test_a_job_that_has_ended_has_nothing_to_report(service):
    with running(service, "train") as job:
        service.worker.end(job)
        rank = Rank(service, job, of_user(service, "kubeprofiler"))
        assert rank.ask("POST", "end_epoch", {"done": 1})[0] == 409


# -- submit --------------------------------------------------------------------------------------------------------


def submitted(service: Service, **changes: Any) -> tuple[int, Any]:
    body = {"jobName": "old", "scriptPath": "train.py", "directoryToMount": "/srv/mine", "batchSize": 16}
    body |= {"trainingSetSize": 1000, "maxEpochs": 3, "isSingleGPU": True, "username": "ann", **changes}
    return of_user(service, "kubeprofiler").ask("POST", "/submit", body)


@pytest.mark.parametrize("image", ["", None])
def test_an_image_that_is_left_empty_is_none(service, image):
    (status, answer), (other, plain) = submitted(service, dockerImage=image), submitted(service)
    assert (status, other) == (201, 201)
    assert shown(service, answer["id"])["spec"] == shown(service, plain["id"])["spec"]
    for job in (answer["id"], plain["id"]):
        cancel(service, job)


def test_the_old_submit_makes_a_job(service):
    status, answer = submitted(service)
    job = answer["id"]
    assert (status, answer) == (201, {"message": "job submitted", "job_id": f"{service.store.id[:8]}-{job}", "id": job})
    spec = shown(service, job)["spec"]
    [role] = spec["roles"]
    assert (spec["name"], role["command"], role["gpus"], role["cpus_milli"]) == (
        "old",
        ["python" if shutil.which("python", path=PATH) else "python3", "/srv/mine/train.py"],
        1,
        0,
    )
    assert (spec["workdir"], spec["epochs"]) == ("/srv/mine", 3)
    library = str(Path(__file__).parents[3] / "sdk/src")
    assert spec["env"] == {
        "BATCH_SIZE": "16",
        "TRAINING_SET_SIZE": "1000",
        "SWELL_CUSTOM_DIR": "/srv/mine",
        "PYTHONPATH": library,
    }
    cancel(service, job)


def test_it_shares_a_gpu_when_it_says_so_and_how_much_it_needs(service):
    asked = {"estimatedMemory": 12}
    found = [submitted(service, **asked, disableGPUSharing=unshared)[1]["id"] for unshared in (False, True)]
    roles = [shown(service, job)["spec"]["roles"][0] for job in found]
    assert [(role["gpus"], role["gpu_memory_mib"]) for role in roles] == [(0, 12), (1, 12)]
    assert [shown(service, job)["spec"]["env"]["RESERVED_MEM"] for job in found] == ["12", "12"]
    for job in found:
        cancel(service, job)


def test_a_job_that_no_gpu_here_could_hold_is_refused(service):
    service.worker.sync()
    status, answer = submitted(service, estimatedMemory=4096, disableGPUSharing=False)
    assert (status, answer["error"][: len(REFUSED)]) == (400, REFUSED)
    assert answer["error"].endswith("; submit it with estimatedMemory 16 or less")  # not with options of our commands


REFUSED = "job 'old' can never run here: it wants 0 CPUs, 4 GiB of one GPU's memory, but this machine has"


@pytest.mark.parametrize(("word", "gpus"), [("yes", 1), ("1", 1), ("off", 4)])
def test_a_switch_is_understood_in_the_words_people_use(service, word, gpus):
    service.worker.sync()
    _, answer = submitted(service, isSingleGPU=word)
    assert shown(service, answer["id"])["spec"]["width_max"] == gpus
    cancel(service, answer["id"])
    status, answer = submitted(service, isSingleGPU="maybe")
    assert (status, answer["error"]) == (400, "isSingleGPU must be true or false, but is 'maybe'")


def test_without_isSingleGPU_it_is_elastic_up_to_the_widest_machine(service):  # noqa: N802
    service.worker.sync()
    _, answer = submitted(service, isSingleGPU=False)
    spec = shown(service, answer["id"])["spec"]
    assert (spec["width_min"], spec["width_max"]) == (1, 4)
    cancel(service, answer["id"])


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"jobName": None}, 400, "missing field: jobName (needed: jobName, scriptPath, directoryToMount)"),
        ({"directoryToMount": "mine"}, 400, "directoryToMount 'mine' is not an absolute path; send it in full"),
        ({"isSingleGPU": "perhaps"}, 400, "isSingleGPU must be true or false, but is 'perhaps'"),
        ({"maxEpochs": "many"}, 400, "maxEpochs must be a number of at least 1, but is 'many'"),
        (
            {"username": "bob"},
            403,
            "this address acts as the user ann, not as 'bob'; leave username out",
        ),
    ],
)
def test_an_old_submit_that_cannot_be_meant_is_refused(service, changes, status, said):
    assert submitted(service, **changes) == (status, {"error": said})


def test_a_job_cannot_submit_through_its_own_address(service):
    with running(service, "train") as job:
        body = {"jobName": "x", "scriptPath": "x.py", "directoryToMount": "/"}
        assert of_job(service, job).ask("POST", "/submit", body)[0] == 403


def test_the_original_library_works_where_an_admin_opened_the_door_and_nowhere_else(service):
    with running(service, "train", gpus="1") as job:
        closed = Rank(service, job, Foreign(f"http://{service.host}"))
        assert closed.ask("POST", "end_epoch", {"done": 1})[0] == 404
        door = service.ask("POST", "/doors", {"name": "kubeprofiler", "port": 0}).json
        rank = Rank(service, job, Foreign(door["url"]))
        rank.end_epoch(1)
        assert (rank.has_to_stop(), durable(service, job)) == ("0", 1.0)
        service.ask("DELETE", f"/doors/{door['port']}")
