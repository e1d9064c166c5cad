"""What is the heaviest request that a user may send to each endpoint?

A key is a method and a path as the application has it. `test_hostile.py` holds these against the application's own
list: a new endpoint needs a line here, or in `NOT_FOR_USERS` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from box.hostile.attacker import NUMBER
from box.hostile.stage import Request, Stage

Worst = Callable[[Stage], Request]

NOT_FOR_USERS = {
    "POST /api/v1/workers/sync": "needs the worker's token, which is root's",
    "GET /api/v1/workers/environments/{digest}": "needs the worker's token, which is root's",
    "POST /api/v1/workers/logs": "needs a worker's token, which only an admin can make",
    "POST /api/v1/workers/leave": "needs a worker's token, which only an admin can make",
}
#: Those that make something, which is more work than any refusal.
MAKES = (
    "POST /api/v1/jobs",
    "POST /api/v1/tokens",
    "POST /api/v1/doors/address",
    "POST /deploy",
    "POST /submit",
    "POST /add_job",
)
REFERENCES = 99_999
DOCUMENTS = 1000
VARIABLES = 9_000
VARIABLE_BYTES = 100  # a body that the server reads and takes
NEW = NUMBER.decode()  # another in every request


def _get(path: str) -> Worst:
    return lambda _: Request("GET", path)


def _post(path: str, body: object = None) -> Worst:
    return lambda _: Request("POST", path, body)


def _put(path: str, body: object) -> Worst:
    return lambda _: Request("PUT", path, body)


def _of_job(method: str, what: str, body: object = None) -> Worst:
    """By a name that thousands have, which has to be looked for."""
    return lambda _: Request(method, f"/api/v1/jobs/same{what}", body)


def _of_attempt(method: str, what: str, body: object = None) -> Worst:
    return lambda stage: Request(
        method, f"/api/v1/attempts/{stage.attempt}/{what}", body, stage.token, is_over_tcp=True
    )


def _profiled(method: str, what: str, body: object = None) -> Worst:
    return lambda stage: Request(method, f"/{what}/{stage.store[:8]}-{stage.training}", body)


def _large_submission(stage: Stage) -> Request:
    """Accepted, until the hostile user has as many jobs as they may; read and counted to its end afterwards, too."""
    variables = {f"V{number}": "x" * VARIABLE_BYTES for number in range(VARIABLES)}
    return stage.submission("---\n".join([stage.waiting("env")] * DOCUMENTS), env=variables)


def _large_deployment(stage: Stage) -> Request:
    """As a submission is; here no two may have one name."""
    documents = [stage.waiting(f"n{NEW}-{number}") for number in range(DOCUMENTS)]
    return Request("POST", "/deploy", "---\n".join(documents).encode())


def many_references(stage: Stage) -> Request:
    """All the same: of jobs that exist, and that the hostile user may cancel."""
    return Request("POST", "/api/v1/jobs/cancel", {"jobs": [str(stage.array)] * REFERENCES})


def _as_many_references_as_are_taken(stage: Stage) -> Request:
    """All are looked for; the last is nobody's, so that nothing is cancelled and the next request finds the same."""
    return Request("POST", "/api/v1/jobs/cancel", {"jobs": [str(job) for job in (*range(1, 9_999), 10**9)]})


def checkpoint_report(stage: Stage) -> Request:
    """Its path is long to walk, so that whoever wants to stop the process that walks it meets it."""
    told = {"rank": 0, "checkpoint": {"epochs_done": 1, "path": "one" + "/../one" * 500}}
    return _of_attempt("POST", "report", told)(stage)


EPOCH = {"done": 1}
PROFILE = {"iternum": 1, "meandur": 0.1, "gpumem": 1}
RECORD = {"job_name": f"added-{NEW}", "gpu_req": 1, "gpu_lim": 1, "gpu_assigned": 1}
METRICS = {"metrics": [{"name": f"m{number}", "value": "1"} for number in range(256)]}

WORST: dict[str, Worst] = {
    "GET /api/v1/openapi.json": _get("/api/v1/openapi.json"),
    "GET /api/v1/jobs": _get("/api/v1/jobs?all=true&all_users=true"),
    "POST /api/v1/jobs": _large_submission,
    "GET /api/v1/jobs/{ref}": _of_job("GET", ""),
    "GET /api/v1/jobs/{ref}/show": lambda stage: Request("GET", f"/api/v1/jobs/{stage.array}/show"),
    "DELETE /api/v1/jobs/{ref}": _of_job("DELETE", ""),
    "POST /api/v1/jobs/{ref}/cancel": lambda stage: Request("POST", f"/api/v1/jobs/{stage.jobs[0]}/cancel"),
    "POST /api/v1/jobs/cancel": _as_many_references_as_are_taken,
    "GET /api/v1/jobs/{ref}/logs": _of_job("GET", "/logs"),
    "GET /api/v1/jobs/{ref}/exec": lambda stage: Request("GET", f"/api/v1/jobs/{stage.array}/exec"),
    "GET /api/v1/jobs/{ref}/outputs": _of_job("GET", "/outputs"),
    "POST /api/v1/files/{what}": _post("/api/v1/files/missing", {"chunks": ["0" * 64] * 9_000}),
    "GET /api/v1/files/folders/{folder}": _get(f"/api/v1/files/folders/{'0' * 64}"),
    "GET /api/v1/pools": _get("/api/v1/pools"),
    "POST /api/v1/pools/sync": _post("/api/v1/pools/sync", {"name": "x" * 60_000}),
    "POST /api/v1/pools/worker-token": _post("/api/v1/pools/worker-token", {}),
    "POST /api/v1/pools/kill": _post("/api/v1/pools/kill", {"worker": "none"}),
    "POST /api/v1/pools/{name}/stop": _post("/api/v1/pools/none/stop", {}),
    "GET /api/v1/debug/snapshot": _get("/api/v1/debug/snapshot"),
    "GET /api/v1/events": _get("/api/v1/events?limit=1000"),
    "GET /api/v1/events/stream": _get("/api/v1/events/stream?after=0"),
    "POST /api/v1/attempts/{attempt}/report": checkpoint_report,
    "GET /api/v1/attempts/{attempt}/control": _of_attempt("GET", "control?begun=1"),
    "POST /api/v1/attempts/{attempt}/trainer-status": _of_attempt(
        "POST", "trainer-status", {"trainerStatus": {"progressPercentage": 1, **METRICS}}
    ),
    "POST /api/v1/jobs/{ref}/hold": lambda stage: Request("POST", f"/api/v1/jobs/{stage.jobs[1]}/hold"),
    "POST /api/v1/jobs/{ref}/release": _of_job("POST", "/release"),
    "POST /api/v1/jobs/{ref}/requeue": lambda stage: Request("POST", f"/api/v1/jobs/{stage.jobs[2]}/requeue"),
    "POST /api/v1/jobs/{ref}/scale": lambda stage: Request("POST", f"/api/v1/jobs/{stage.jobs[3]}/scale", {"width": 1}),
    "GET /api/v1/kinds": _get("/api/v1/kinds"),
    "GET /api/v1/kinds/schema": _get("/api/v1/kinds/schema?name=jobset"),
    "GET /api/v1/usage": _get("/api/v1/usage?days=36500&by=user,day"),
    "GET /api/v1/history": _get("/api/v1/history?days=36500"),
    "GET /metrics": _get("/metrics"),
    "GET /healthz": _get("/healthz"),
    "GET /readyz": _get("/readyz"),
    "GET /api/v1/doors": _get("/api/v1/doors"),
    "POST /api/v1/doors": _post("/api/v1/doors", {"name": "genai", "port": 0}),
    "DELETE /api/v1/doors/{port}": lambda _: Request("DELETE", "/api/v1/doors/5000"),
    "POST /api/v1/doors/address": _post("/api/v1/doors/address", {"name": "genai"}),
    "GET /api/v1/doors/addresses": _get("/api/v1/doors/addresses"),
    "DELETE /api/v1/doors/addresses/{token}": lambda _: Request("DELETE", "/api/v1/doors/addresses/0123456789"),
    "POST /api/v1/tokens": _post("/api/v1/tokens", {"name": f"n{NEW}"}),
    "GET /api/v1/tokens": _get("/api/v1/tokens"),
    "DELETE /api/v1/tokens/{token}": lambda _: Request("DELETE", "/api/v1/tokens/nobodys"),
    "POST /api/v1/job-secret/rotate": _post("/api/v1/job-secret/rotate"),
    "GET /api/v1/health": _get("/api/v1/health"),
    "GET /api/v1/server": _get("/api/v1/server"),
    "POST /api/v1/server/stop": _post("/api/v1/server/stop"),
    "GET /api/v1/nodes": _get("/api/v1/nodes"),
    "POST /scale/{name}": _post("/scale/same"),
    "POST /scale": _post("/scale"),
    "POST /deploy": _large_deployment,
    "POST /add_job": _post("/add_job", RECORD),
    "PUT /increment_restarts": _put("/increment_restarts", {"job_name": "r1"}),
    "PUT /update_job": _put("/update_job", {"job_name": "r1", "image": "y" * 60_000}),
    "DELETE /delete_job": lambda _: Request("DELETE", "/delete_job", {"job_name": "same"}),
    "PUT /update_last_checkpoint": _put(
        "/update_last_checkpoint", {"job_name": "r1", "last_checkpoint_time": 1, "completed_epochs": 1}
    ),
    "PUT /update_job_status": _put("/update_job_status", {"job_name": "r1", "status": "completed"}),
    "GET /get_job/{name}": _get("/get_job/r1"),
    "GET /get_all_jobs": _get("/get_all_jobs"),
    "GET /get_jobs_by_arrival": _get("/get_jobs_by_arrival"),
    "GET /get_jobs_by_checkpoint_limit": _get("/get_jobs_by_checkpoint_limit"),
    "GET /get_jobs_by_difference/{difference:int}": _get("/get_jobs_by_difference/1"),
    "GET /get_scale_down_jobs_by_checkpoint/{needed:int}": _get("/get_scale_down_jobs_by_checkpoint/100000"),
    "GET /freegpu": _get("/freegpu"),
    "GET /resourcequota/{namespace}": _get("/resourcequota/one"),
    "POST /profiling/{uuid}": _profiled("POST", "profiling", PROFILE),
    "POST /end_epoch/{uuid}": _profiled("POST", "end_epoch", EPOCH),
    "POST /signal_end/{uuid}": _profiled("POST", "signal_end"),
    "GET /has_to_stop/{uuid}": _profiled("GET", "has_to_stop"),
    "POST /submit": _post("/submit", {"jobName": f"n{NEW}", "scriptPath": "/bin/true", "directoryToMount": "/"}),
}
