"""In which job, task or pod of a batch system or cluster does this worker run?

Asked of the environment, which every one of them fills. Whoever starts workers knows better where their logs are than
the environment does, and says so in `SWELL_BACKEND_LOG`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from swell.model.cluster import BackendJob
from swell.model.launch import LINE_MAX

LOG_VARIABLE = "SWELL_BACKEND_LOG"  # a file, an address or a command that shows the backend's own log
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
Environment = Mapping[str, str]


def find_backend(environ: Environment, *, namespace_file: Path = NAMESPACE_FILE) -> BackendJob | None:
    """None: it was started by hand, or by something that Swell does not know. The innermost one counts."""
    found = _slurm(environ) or _aws(environ) or _azure(environ) or _pod(environ, namespace_file)
    if found is None:
        return None
    log = environ.get(LOG_VARIABLE) or found.log
    return BackendJob(found.backend, _line(found.id), _line(log))


def _line(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:LINE_MAX]


def _slurm(environ: Environment) -> BackendJob | None:
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    name = f"{array}_{task}" if array and task else job
    folder = environ.get("SLURM_SUBMIT_DIR")
    return BackendJob("slurm", name, f"{folder}/slurm-{name}.out" if folder else "")


def _aws(environ: Environment) -> BackendJob | None:
    job = environ.get("AWS_BATCH_JOB_ID")
    if not job:
        return None
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    page = f"https://console.aws.amazon.com/batch/home?region={region}#jobs/detail/{job}" if region else ""
    return BackendJob("aws-batch", job, page)


def _azure(environ: Environment) -> BackendJob | None:
    task, job = environ.get("AZ_BATCH_TASK_ID"), environ.get("AZ_BATCH_JOB_ID", "")
    if not task:
        return None
    account = environ.get("AZ_BATCH_ACCOUNT_URL", "").rstrip("/")
    log = f"{account}/jobs/{job}/tasks/{task}/files/stderr.txt" if account and job else ""
    return BackendJob("azure-batch", f"{job}/{task}" if job else task, log)


def _pod(environ: Environment, namespace_file: Path) -> BackendJob | None:
    pod = environ.get("HOSTNAME") if environ.get("KUBERNETES_SERVICE_HOST") else None
    if not pod:
        return None
    try:
        namespace = namespace_file.read_text().strip() or "default"
    except (OSError, UnicodeDecodeError):
        namespace = environ.get("POD_NAMESPACE", "default")
    return BackendJob("kubernetes", f"{namespace}/{pod}", f"kubectl logs -n {namespace} {pod}")
