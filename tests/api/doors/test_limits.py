"""genai's words to a user who may hold three of the four GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.service import Service
from swell.config import parse_config

from .foreign import Foreign, of_user, running

SCALED, NOT_SCALED = (200, ["Scaled", 200]), (409, ["Did not scale", 401])
HALF = {"gpuMemory": "8MiB"}  # of a GPU of this worker's


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = parse_config({"limits": {"default": {"gpus": 3}}})
    made = Service(tmp_path_factory.mktemp("limits"), config=limits)
    yield made
    made.close()


@pytest.fixture
def genai(service: Service) -> Foreign:
    return of_user(service, "genai")


def test_a_job_is_not_stopped_for_more_than_its_user_may_hold(service, genai):
    """It was, whenever a GPU was free: it lost its work since the checkpoint, and came back as wide as before."""
    with running(service, "wide", gpus="1..4") as wide:
        assert service.ask("GET", f"/jobs/{wide}").json["width"] == 3
        assert genai.ask("GET", "/freegpu") == (200, {"box": 1})
        assert [genai.ask("POST", "/scale/wide"), genai.ask("POST", "/scale")] == [NOT_SCALED, NOT_SCALED]
        found = service.ask("GET", f"/jobs/{wide}").json
        assert (found["state"], found["attempts"]) == ("running", 1)


def test_it_is_scaled_as_far_as_its_user_may(service, genai):
    with running(service, "small", gpus="2") as small, running(service, "wide", gpus="1..4") as wide:
        assert service.ask("GET", f"/jobs/{wide}").json["width"] == 1
        service.worker.end(small)
        assert genai.ask("POST", "/scale/wide") == SCALED
        service.worker.until_asked(wide, is_stopping=True)
        service.worker.gone(wide, 143, cause="stopped")
        service.worker.begin(wide, attempt=2)
        assert service.ask("GET", f"/jobs/{wide}").json["width"] == 3
        assert genai.ask("POST", "/scale/wide") == NOT_SCALED


def test_a_share_is_a_part_of_what_they_may_hold(service, genai):
    with running(service, "share", **HALF), running(service, "wide", gpus="1..4") as wide:
        assert service.ask("GET", f"/jobs/{wide}").json["width"] == 2
        assert genai.ask("POST", "/scale/wide") == NOT_SCALED


def test_the_quota_is_what_the_user_may_hold_and_a_begun_gpu_counts_as_one(service, genai):
    """Whoever reads it takes whole numbers."""
    assert genai.ask("GET", "/resourcequota/fms-tuning") == (200, {"limit": "3", "used": "0"})
    with running(service, "share", **HALF):
        assert genai.ask("GET", "/resourcequota/fms-tuning") == (200, {"limit": "3", "used": "1"})
        with running(service, "other", **HALF), running(service, "whole", gpus="1"):
            assert genai.ask("GET", "/resourcequota/any") == (200, {"limit": "3", "used": "2"})
