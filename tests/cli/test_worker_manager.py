"""`cl-worker-manager` reads CodaLab's command lines, says what each option means here, and fixes what was wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pools.fake_slurm import FakeSlurm
from swell.cli.doors.run_scheduler import main as scheduler
from swell.cli.doors.worker_manager import _kinds, _of_kind, main
from swell.cli.pool_process import PoolCommand
from swell.foreign.worker_manager import COMMON, ManagerCache, shared_cache
from swell.model.pool import POOL_NAME

#: what CodaLab's program takes, by backend
THEIRS = {
    "aws-batch": "region job-definition-name gpus user job-queue job-filter cpus memory-mb",
    "azure-batch": "account-name account-key service-url log-container-url job-id gpus user cpus memory-mb",
    "slurm-batch": "job-name nodelist exclude partition gpus gpu-type constraint time user password-file "
    "slurm-work-dir exit-after-num-failed account cpus memory-mb",
    "kubernetes": "bundle-runtime cluster-host auth-token cert-path cert nfs-volume-name gpus cpus memory-mb",
}
SHARED = (
    "server temp-session min-workers max-workers search verbose sleep-time restart-after-seconds no-prefilter "
    "min-seconds-between-workers worker-tag worker-work-dir-prefix worker-max-work-dir-size "
    "worker-delete-work-dir-on-exit worker-idle-seconds worker-download-dependencies-max-retries "
    "worker-checkin-frequency-seconds worker-exit-after-num-runs worker-pass-down-termination worker-exit-on-exception "
    "worker-tag-exclusive worker-group worker-executable worker-shared-memory-size-gb worker-preemptible"
)
SERVER = ("--server", "https://box.lab:8443", "--token-file", "/t")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("backend", THEIRS)
def test_every_option_of_every_backend_is_read(backend: str) -> None:
    assert {option.name for option in _of_kind(_kinds()[backend])} >= set(THEIRS[backend].split())
    assert run(backend, "--help").exit_code == 0


def test_every_shared_option_is_read_and_has_an_effect_or_a_reason() -> None:
    assert {option.name for option in COMMON} == set(SHARED.split())
    assert [option.name for option in COMMON if not option.field and not option.why] == []
    help_text = run("--help").output
    assert [name for name in SHARED.split() if f"--{name}" not in help_text] == []


def test_a_command_line_of_codalab_becomes_a_pool_and_each_option_says_what_it_is() -> None:
    words = (*SERVER, "--temp-session", "--search", "state=staged", ".mine", "--worker-tag", "lab")
    done = run(
        *words, "--worker-executable", "cl-worker", "slurm-batch", "--gpus", "2", "--memory-mb", "512", "--dry-run"
    )
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        "swell: --server: --server https://box.lab:8443",
        "swell: --temp-session: no effect; a token takes the place of a session (--token-file)",
        (
            "swell: --search: no effect; a pool serves the jobs that its workers could run; use --worker-tag-exclusive "
            "or --worker-group"
        ),
        "swell: --worker-tag: --tag lab",
        "swell: --worker-executable: --executable swell",
        "swell: --memory-mb: --memory 512MiB",
        "swell: --gpus: --gpus 2",
    ]
    for word in ("--mem=512M", "--gres=gpu:2", "--time=10-0", "--tag lab", "--job-name=codalab-slurm-worker-"):
        assert word in done.stdout
    for word in ("--partition", "--account"):  # not required any more, and no cluster's own
        assert word not in done.stdout


#: of each backend every option, with a value that its users have
WHOLE = {
    "aws-batch": "--region eu-west-1 --job-definition-name codalab-worker --gpus 1 --user root --job-queue gpu "
    "--job-filter cl.* --cpus 2 --memory-mb 4096",
    "azure-batch": "--account-name abc --account-key c2VjcmV0 --service-url https://abc.westeurope.batch.azure.com "
    "--log-container-url https://abc.blob.core.windows.net/logs?sig=c2VjcmV0 --job-id workers --gpus 0 --user root "
    "--cpus 2 --memory-mb 4096",
    "slurm-batch": "--job-name mine --nodelist n[1-2] --exclude n3 --partition gpu --gpus 2 --gpu-type a100 "
    "--constraint fast --time 2-0 --user ann --password-file /p --slurm-work-dir /nfs/logs --exit-after-num-failed 3 "
    "--account nlp --cpus 4 --memory-mb 8000",
    "kubernetes": "--bundle-runtime docker --cluster-host https://10.0.0.1 --auth-token c2VjcmV0 --cert-path /dev/null "
    "--cert PEM --nfs-volume-name nfs --gpus 1 --cpus 1 --memory-mb 2048",
}
WHOLE_SHARED = (
    "--temp-session --min-workers 0 --max-workers 3 --search state=staged .mine --verbose --sleep-time 7 "
    "--restart-after-seconds 3600 --no-prefilter --once --min-seconds-between-workers 30 --worker-tag lab "
    "--worker-work-dir-prefix /scratch --worker-max-work-dir-size 10g --worker-delete-work-dir-on-exit "
    "--worker-idle-seconds 300 --worker-download-dependencies-max-retries 5 --worker-checkin-frequency-seconds 10 "
    "--worker-exit-after-num-runs 4 --worker-pass-down-termination --worker-exit-on-exception --worker-tag-exclusive "
    "--worker-group vision --worker-executable cl-worker --worker-shared-memory-size-gb 2 --worker-preemptible"
)
PASSED_DOWN = (
    "--tag lab --tag-exclusive --group vision --idle-seconds 300 --exit-after-num-runs 4 --exit-on-exception "
    "--pass-down-termination --preemptible --max-work-dir-size 10240MiB --delete-work-dir-on-exit "
    "{cache}--max-fetch-retries 5 {size}--checkin-frequency-seconds 10"
)
CACHE_OF = {"kubernetes": {"cache": "--cache /mnt/nfs/swell-cache ", "size": "--max-cache-size 10240MiB "}}
SHM_OF = {
    "aws-batch": '"sharedMemorySize": 2048',
    "azure-batch": "--shm-size=2048m",
    "slurm-batch": "--container-options --shm-size=2g",
    "kubernetes": "sizeLimit: 2048Mi",
}


@pytest.mark.parametrize("backend", WHOLE)
def test_a_command_line_with_every_option_is_taken_and_no_secret_of_it_is_repeated(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of the account was printed, and so in the log of the service that ran the manager."""
    monkeypatch.setenv("SWELL_WORKER_IMAGE", "registry.lab/swell:1")
    done = run(*SERVER, *WHOLE_SHARED.split(), backend, *WHOLE[backend].split(), "--dry-run")
    assert done.exit_code == 0, done.stderr
    said = [word for word in (*WHOLE_SHARED.split(), *WHOLE[backend].split()) if word.startswith("--")]
    explained = [line.split(": ")[1] for line in done.stderr.splitlines()]
    assert sorted(explained) == sorted({"--server", *said} - {"--once"})
    assert "c2VjcmV0" not in done.output
    words = re.sub(r"[\s\"',-]+", " ", done.stdout)
    passed = PASSED_DOWN.format(**CACHE_OF.get(backend, {"cache": "", "size": ""}))
    assert re.sub(r"[\s\"',-]+", " ", passed) in words.replace("spot notice ", "")  # which AWS adds
    assert SHM_OF[backend] in done.stdout


def test_a_zero_means_what_it_meant_no_limit_of_runs_and_no_pause_between_workers() -> None:
    """A worker that may take no run left at once and another was started; a pause of nothing was refused."""
    zeros = ("--worker-exit-after-num-runs", "0", "--min-seconds-between-workers", "0")
    done = run(*SERVER, *zeros, "slurm-batch", "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert "--exit-after-num-runs" not in done.stdout
    assert "--worker-exit-after-num-runs: no effect; 0 is no limit" in done.stderr
    assert "--min-seconds-between-workers: --launch-seconds 0" in done.stderr


def test_what_cannot_be_is_refused_before_anything_is_started() -> None:
    done = run(*SERVER, "--min-workers", "5", "--max-workers", "2", "slurm-batch", "--dry-run")
    assert (done.exit_code, "--min-workers 5 is more than --max-workers 2" in done.stderr) == (2, True)
    done = run(*SERVER, "slurm-batch", "--partition", "--wrap=reboot", "--dry-run")
    assert (done.exit_code, "is not the name of a partition" in done.stderr) == (2, True)
    done = run(*SERVER, "slurm-bitch")
    assert (done.exit_code, "unknown backend" in done.stderr) == (2, True)


def test_once_looks_once_and_launches_nothing_while_the_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CodaLab's never read --once; and "cannot ask" was "no workers", so more were launched."""
    slurm = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", slurm.path)
    token = tmp_path / "token"
    token.write_text("swt.x")
    words = ("--server", "http://127.0.0.1:9", "--token-file", str(token), "--folder", str(tmp_path / "pool"))
    done = run("--once", *words, "--min-workers", "3", "slurm-batch")
    assert (done.exit_code, "http://127.0.0.1:9 cannot be reached" in done.stderr) == (1, True), done.output
    assert "0 workers" in done.stderr
    assert slurm.jobs == {}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("aws-batch --job-queue cpu", "aws-batch --job-queue gpu"),
        ("aws-batch --job-queue GPU", "aws-batch --job-queue gpu"),
        (f"aws-batch --job-queue {'q' * 60}a", f"aws-batch --job-queue {'q' * 60}b"),
        ("azure-batch --job-id a", "azure-batch --job-id b"),
        ("--worker-tag a kubernetes", "--worker-tag b kubernetes"),
        ("--worker-tag a kubernetes", "kubernetes"),
        ("--name a kubernetes", "kubernetes --name b"),
        ("--name a slurm-batch", "slurm-batch --name b"),
        ("slurm-batch --job-name a", "slurm-batch --job-name b"),
    ],
)
def test_two_managers_of_one_backend_that_differ_are_two_pools(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """The second was refused: another pool is called 'kubernetes'."""
    names: list[str] = []

    def note(asked: PoolCommand, **_: object) -> int:
        names.append(str(asked.given["name"]))
        return 0

    monkeypatch.setattr("swell.cli.pool_process.run_here", note)
    for words in (first, second, first):
        assert run(*SERVER, *words.split()).exit_code == 0
    assert (names[0], names[0] != names[1]) == (names[2], True)
    assert [name for name in names if not POOL_NAME.fullmatch(name)] == []


def test_a_long_option_may_be_cut_off_as_argparse_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[PoolCommand] = []

    def note(asked: PoolCommand, **_: object) -> int:
        given.append(asked)
        return 0

    monkeypatch.setattr("swell.cli.pool_process.run_here", note)
    short = "--min-w 1 --max-w=7 --sea state=staged .mine --verb slurm-batch --part gpu --memory 512"
    whole = "--min-workers 1 --max-workers 7 --search state=staged .mine --verbose slurm-batch --partition gpu"
    for words in (short, f"{whole} --memory-mb 512"):
        done = run(*SERVER, *words.split())
        assert done.exit_code == 0, done.output
    assert given[0] == given[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--worker-tag-e slurm-batch --gpu 1", "--gpu could be --gpu-type or --gpus"),
        ("--min 1 slurm-batch", "--min could be --min-seconds-between-workers or --min-workers"),
        ("--nothing 1 slurm-batch", "No such option '--nothing'"),
        ("slurm-batch -q", "No such option '-q'"),
    ],
)
def test_what_could_be_several_options_or_none_is_refused(words: str, said: str) -> None:
    done = run(*SERVER, *words.split())
    assert (done.exit_code, said in done.stderr) == (2, True), done.output


def test_azure_names_all_that_is_missing_at_once() -> None:
    """One was named, then the next, and the key by an option that CodaLab does not have."""
    done = run(*SERVER, "azure-batch", "--job-id", "a", "--image", "swell")
    names = ("--account-name", "--account-key ", "--service-url", "--log-container-url")
    assert (done.exit_code, [name for name in names if name not in done.stderr]) == (2, []), done.output
    assert "--job-id ID" not in done.stderr


def test_the_scheduler_takes_such_beginnings_too_also_of_switches() -> None:
    def read(words: str) -> dict[str, object]:
        return scheduler.make_context("run-scheduler", words.split()).params

    short, whole = "--batch 8 --is_s --disable no", "--batch_size 8 --is_single_gpu --disable_gpu_sharing no"
    assert read(f"job --script x.py {short}") == read(f"job --script_path x.py {whole}")


@pytest.mark.parametrize(
    ("words", "line", "told"),
    [
        (
            "slurm-batch --job-name GPU_worker",
            "--job-name: --name gpu-worker-acda (pools have lower-case letters, digits and '-' in their names)",
            "--job-name=gpu-worker-acda-",
        ),
        (
            "--worker-idle-seconds 0 slurm-batch",
            (
                "--worker-idle-seconds: --idle-seconds 5 (a worker that leaves at once gets no job; CodaLab's left "
                "at its next check-in)"
            ),
            "--idle-seconds 5",
        ),
        (
            "--worker-checkin-frequency-seconds 120 slurm-batch",
            (
                "--worker-checkin-frequency-seconds: --checkin-frequency-seconds 55 (a worker that is silent "
                "for a minute counts as out of reach)"
            ),
            "--checkin-frequency-seconds 55",
        ),
        (
            "--worker-checkin-frequency-seconds 0 slurm-batch",
            "--worker-checkin-frequency-seconds: no effect; 0 is the default",
            "exec",
        ),
        (
            "--worker-tag-exclusive slurm-batch",
            "--worker-tag-exclusive: no effect; there is no --worker-tag",
            "exec",
        ),
        (
            "--worker-work-dir-prefix scratch slurm-batch",
            (
                "--worker-work-dir-prefix: --work-dir-prefix {here}/scratch (below the folder that the manager "
                "was started in)"
            ),
            "--folder {here}/scratch/swell-worker-",
        ),
        (
            "--worker-shared-memory-size-gb 0 slurm-batch",
            "--worker-shared-memory-size-gb: no effect; 0 is the default",
            "exec",
        ),
        (
            "--worker-shared-memory-size-gb 8 aws-batch --image swell",
            "--worker-shared-memory-size-gb: --shared-memory 8GiB",
            '"sharedMemorySize": 8192',
        ),
    ],
)
def test_a_value_that_a_pool_cannot_have_becomes_the_nearest_one_and_its_line_says_so(
    words: str, line: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these was refused, or had no effect where jobs are processes of the worker."""
    monkeypatch.chdir(tmp_path)
    done = run(*SERVER, *words.split(), "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert f"swell: {line.format(here=tmp_path)}" in done.stderr.splitlines()
    assert told.format(here=tmp_path) in done.stdout


def test_a_tag_with_an_underscore_is_refused_as_codalabs_worker_refused_it() -> None:
    done = run(*SERVER, "--worker-tag", "GPU_lab", "slurm-batch", "--dry-run")
    assert (done.exit_code, "write letters, digits and '-'" in done.stderr) == (2, True), done.output


APART = "workers keep their own folders on a local disk"


@pytest.mark.parametrize(
    ("prefix", "shared", "network", "found"),
    [
        (None, {}, None, None),
        ("/scratch", {}, None, None),
        (
            "/home/ann",
            {},
            "nfs4",
            ManagerCache(
                "/home/ann/ann-swell-cache",
                "worker-work-dir-prefix",
                f"/home/ann is on a network disk (nfs4), which workers share; {APART}",
            ),
        ),
        (
            "/mnt/data/x/",
            {"/mnt/data": "mount"},
            None,
            ManagerCache("/mnt/data/x/swell-cache", "worker-work-dir-prefix", f"workers share /mnt/data; {APART}"),
        ),
        ("/mnt/data2", {"/mnt/data": "mount"}, None, None),
        (None, {"/mnt/data": "mount"}, None, None),
        (
            "/scratch",
            {"/mnt/nfs": "nfs-volume-name"},
            None,
            ManagerCache("/mnt/nfs/swell-cache", "nfs-volume-name", ""),
        ),
    ],
)
def test_a_disk_that_workers_share_has_their_cache_and_not_their_folders(
    prefix: str | None, shared: dict[str, str], network: str | None, found: ManagerCache | None
) -> None:
    assert shared_cache(prefix, shared, network, "ann") == found


def test_a_prefix_on_a_shared_disk_starts_workers_on_a_local_one_and_the_lines_say_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every start failed: a worker refuses a folder on a network disk."""
    monkeypatch.setenv("SWELL_WORKER_IMAGE", "swell")
    prefix = ("--worker-work-dir-prefix", "/mnt/nfs/jobs", "--worker-max-work-dir-size", "20g")
    cluster = ("--cluster-host", "https://10.0.0.1", "--auth-token", "x")
    done = run(*SERVER, *prefix, "kubernetes", "--nfs-volume-name", "nfs", *cluster, "--dry-run")
    assert done.exit_code == 0, done.stderr
    lines = [
        line for line in done.stderr.splitlines() if line.split(": ")[1] in (prefix[0], prefix[2], "--nfs-volume-name")
    ]
    assert lines == [
        f"swell: --worker-work-dir-prefix: --cache /mnt/nfs/jobs/swell-cache (workers share /mnt/nfs; {APART})",
        (
            "swell: --worker-max-work-dir-size: --max-work-dir-size 20GiB (also of the cache that workers share: "
            "--max-cache-size)"
        ),
        (
            "swell: --nfs-volume-name: --nfs-volume-name nfs (with the cache of all workers: --cache "
            "/mnt/nfs/jobs/swell-cache)"
        ),
    ]
    pod = yaml.safe_load(done.stdout)["spec"]["containers"][0]
    assert [mount["mountPath"] for mount in pod["volumeMounts"]] == ["/tmp", "/dev/shm", "/mnt/nfs"]
    words = pod["command"]
    assert (words[words.index("--cache") + 1], words[words.index("--max-cache-size") + 1]) == (
        "/mnt/nfs/jobs/swell-cache",
        "20480MiB",
    )
