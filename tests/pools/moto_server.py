"""AWS on loopback: moto's server (a fake of AWS) in a process of its own. `python -m pools.moto_server [runs]`

moto without docker calls every job a success at once. Here a job stays SUBMITTED until a test says what becomes of it
(`POST /test/jobs/ID` with a status, an exit code, a line of log); with `runs`, its command runs as a process of this
machine, with the environment and the secrets that AWS would give it, and its output is its log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.batch.models import Job
from moto.batch_simple.models import BatchSimpleBackend
from moto.core.models import default_user_config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.ssm.models import ssm_backends
from werkzeug.serving import make_server

METADATA = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # which is the machine's, whatever runs on it
JOBS: dict[str, Job] = {}
PROCESSES: dict[str, subprocess.Popen[bytes]] = {}
RUNS = "runs" in sys.argv


def main() -> None:
    default_user_config["batch"] = {"use_docker": False}
    BatchSimpleBackend._mark_job_as_finished = submitted  # type: ignore[method-assign]
    Job.terminate = terminated  # type: ignore[method-assign]
    Job._container_details = details  # type: ignore[method-assign]
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, controlled(application), threaded=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    finally:
        for process in PROCESSES.values():
            process.kill()


def submitted(backend: Any, include_start_attempt: bool, job: Job) -> None:
    backend.backend._jobs[job.job_id] = JOBS[job.job_id] = job
    if RUNS:
        threading.Thread(target=run, args=(job,), daemon=True).start()


own_details = Job._container_details


def details(job: Job) -> dict[str, Any]:
    """AWS says the exit code here, too."""
    return {**own_details(job), **({} if job.exit_code is None else {"exitCode": job.exit_code})}


def terminated(job: Job, reason: str) -> None:
    if job.job_stopped:
        return None
    job.job_stopped_reason = reason
    if job.job_id in PROCESSES:
        return PROCESSES[job.job_id].terminate()  # it ends in its own time, and `run` sees it
    job.stop = True
    job._mark_stopped(success=False)
    return None


def changed(job: Job, told: dict[str, Any]) -> None:
    if "log" in told:
        write(job, told["log"])
    if "exit_code" in told:
        job.exit_code = told["exit_code"]
        job._mark_stopped(success=job.exit_code == 0)
    if "status" in told:
        job.log_stream_name = job._stream_name if told["status"] == "RUNNING" else None
        job.status = told["status"]


def write(job: Job, text: str) -> None:
    backend = job._log_backend
    if job._log_group not in backend.groups:
        backend.create_log_group(job._log_group, {})
    if job._stream_name not in backend.groups[job._log_group].streams:
        backend.create_log_stream(job._log_group, job._stream_name)
    events = [{"timestamp": int(time.time() * 1000), "message": line} for line in text.splitlines()]
    backend.put_log_events(job._log_group, job._stream_name, events)


def secret_text(parameters: Any, name: str) -> str:
    """Decrypted, as the execution role reads it."""
    return str(parameters.get_parameter(name).response_object(decrypt=True, region="us-east-1")["Value"])


def run(job: Job) -> None:
    told = job.container_overrides
    properties = job.job_definition.container_properties or {}
    environment = {one["name"]: one["value"] for one in told["environment"]}
    parameters = ssm_backends[job.backend.account_id][job.backend.region_name]
    for secret in properties["secrets"]:
        environment[secret["name"]] = secret_text(parameters, secret["valueFrom"])
    machine = {name: os.environ[name] for name in ("PATH", METADATA) if name in os.environ}
    process = subprocess.Popen(
        told["command"],
        env={**machine, "HOME": "/tmp", "AWS_BATCH_JOB_ID": job.job_id, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
    )
    PROCESSES[job.job_id] = process
    changed(job, {"status": "RUNNING"})
    assert process.stdout is not None
    for line in process.stdout:
        write(job, line.decode(errors="replace"))
    changed(job, {"exit_code": process.wait() % 256})


def controlled(application: Any) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if not path.startswith("/test/jobs/"):
            found: Iterable[bytes] = application(environ, start)
            return found
        told = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        changed(JOBS[path.rpartition("/")[2]], told)
        start("200 OK", [("Content-Length", "0")])
        return [b""]

    return answer


if __name__ == "__main__":
    main()
