"""Does it hold for long? The large counts of every random tier, with the result kept in docs/soak.md.

make soak                     all tiers
python tools/soak.py crash --seeds 50 --first 1
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "docs/soak.md"
sys.path.insert(0, str(ROOT))

from tools.environment import install, is_there  # noqa: E402
from tools.environments import FMS, LIGHTNING_15, PYTORCH, TENSORFLOW, make_environment  # noqa: E402
from tools.other_kernel import prepare_machine, run_in_machine  # noqa: E402

SIMULATED_A_ROUND = 200  # a simulated one takes less time than its process takes to start
#: Debian's packages for the accounting of Slurm, and what is there when they are.
ACCOUNTING = {
    "mariadb-server": "mariadbd",
    "slurmdbd": "slurmdbd",
    "slurm-wlm-mysql-plugin": "/usr/share/doc/slurm-wlm-mysql-plugin",
}
#: A browser without a window, of Debian; another one that is there does as well (tests/experiments/test_page.py).
BROWSER = "chromium-headless-shell"
BROWSERS = (BROWSER, "chromium", "google-chrome")
WITH_FRAMEWORKS = {
    LIGHTNING_15: ("kubeprofiler with Lightning",),
    PYTORCH: ("lightning", "kubeprofiler with Lightning", "torchrun", "Trainer", "Trainer by accelerate"),
    TENSORFLOW: ("Keras", "Keras, one task"),
}
#: Whose commands in examples/README.md are typed as they are written there.
WRITTEN = {
    LIGHTNING_15: ("kubeprofiler/lightning_style.py",),
    PYTORCH: ("pytorch/ddp.py", "lightning/train.py", "huggingface/train.py"),
    TENSORFLOW: ("keras/train.py",),
}


def crash(first: int, seeds: int) -> tuple[str, list[str]]:
    """Server and worker killed at random moments while a task runs."""
    from tests.crash.rounds import play

    return _rounds("crash", play, first, seeds)


def training(first: int, seeds: int) -> tuple[str, list[str]]:
    """Training resized by others while server, worker, the job and its checkpoints are killed at random moments."""
    from tests.crash.training import play_training

    return _rounds("training", play_training, first, seeds)


def simulated(first: int, seeds: int) -> tuple[str, list[str]]:
    """Nodes, reports, engine calls and the server itself fail at random moments, in virtual time and in memory."""
    told, problems = _rounds("simulated", _simulate, first, seeds, at_once=2)
    return f"{told}, of {SIMULATED_A_ROUND} each", problems


def _simulate(block: int) -> list[str]:
    import logging

    from swell.sim.faults import check_seed

    logging.disable(logging.CRITICAL)
    problems: list[str] = []
    for seed in range(SIMULATED_A_ROUND * block, SIMULATED_A_ROUND * (block + 1)):
        try:
            check_seed(seed)
        except Exception as broken:  # noqa: BLE001  told, and the next seed is tried
            problems.append(f"seed {seed}: {type(broken).__name__}: {broken}")
    return problems


def kubernetes(first: int, seeds: int) -> tuple[str, list[str]]:
    """Everything of a real control plane, and Swell itself, fails at random moments while jobs of all kinds run."""
    sys.path.insert(0, str(ROOT / "tests"))
    from faults.rounds import play_kubernetes

    # A round has few of its many faults, and waits for most of its time.
    return _rounds("kubernetes", play_kubernetes, first, 2 * seeds, at_once=2)


def walk(first: int, seeds: int) -> tuple[str, list[str]]:
    """Three users do with kubectl whatever comes to their minds; what Swell believes to be held is what pods hold."""
    sys.path.insert(0, str(ROOT / "tests"))
    from walk.rounds import play_walk

    return _rounds("walk", play_walk, first, 2 * seeds, at_once=2)


def odd(first: int, _: int) -> tuple[str, list[str]]:
    """Objects of every kind at random, from the API server's own schemas, beside normal jobs: all of those end well."""
    sys.path.insert(0, str(ROOT / "tests"))
    from odd.rounds import JOBS, OBJECTS, play_odd

    return f"{OBJECTS} objects, {JOBS} jobs, seed {first}", play_odd(first)


def _rounds(
    name: str, play: Callable[[int], list[str]], first: int, seeds: int, *, at_once: int = 1
) -> tuple[str, list[str]]:
    problems: list[str] = []
    ways = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once, mp_context=ways, max_tasks_per_child=1) as pool:
        rounds = {pool.submit(play, seed): seed for seed in range(first, first + seeds)}
        for number, done in enumerate(as_completed(rounds), 1):
            seed = rounds[done]
            error = done.exception()
            problems += done.result() if error is None else [f"seed {seed}: {type(error).__name__}: {error}"]
            print(f"\r{name}: round {number} of {seeds} (seed {seed}), {len(problems)} problem(s)", end="", flush=True)
    print()
    return f"{seeds} rounds, seeds {first} to {first + seeds - 1}", problems


def keras(_: int, __: int) -> tuple[str, list[str]]:
    """A Keras script for KubeProfiler, with TensorFlow, resized while it runs."""
    problem = make_environment(TENSORFLOW)
    if problem:
        return "not run", [problem]
    sys.path.insert(0, str(ROOT / "tests"))
    from e2e.kubeprofiler import play_keras

    return "1 script, 120 epochs", play_keras(str(TENSORFLOW.python))


def frameworks(_: int, __: int) -> tuple[str, list[str]]:
    """Real Lightning (1.5 and current), Trainer, Accelerate, torchrun, Keras: two ranks, then one; as without Swell."""
    sys.path.insert(0, str(ROOT / "tests"))
    from e2e.as_written import play_written
    from e2e.frameworks import CASES, play, play_inside

    problems = []
    for environment, names in WITH_FRAMEWORKS.items():
        problem = make_environment(environment)
        problems += [problem] if problem else []
        for name in () if problem else names:
            print(f"frameworks: {name}, in {environment.name} ...", flush=True)
            problems += play(name, str(environment.python))
            problems += play_inside(name, str(environment.python)) if CASES[name].stops_inside else []
        for script in () if problem else WRITTEN[environment]:
            print(f"frameworks: {script} as examples/README.md has it, in {environment.name} ...", flush=True)
            problems += play_written(script, str(environment.python))
    assert {name for names in WITH_FRAMEWORKS.values() for name in names} == CASES.keys()
    played = sum(len(names) for names in WITH_FRAMEWORKS.values())
    return f"{played} jobs of 40 epochs, and the commands of examples/README.md", problems


def fms(_: int, __: int) -> tuple[str, list[str]]:
    """The real fms-hf-tuning tells Swell of its checkpoints by the notifier of examples/."""
    problem = make_environment(FMS)
    if problem:
        return "not run", [problem]
    sys.path.insert(0, str(ROOT / "tests"))
    from e2e.fms import play_fms

    return "1 job, 2 epochs", play_fms(str(FMS.python))


def properties(first: int, _: int) -> tuple[str, list[str]]:
    """The planner's invariants over random clusters and job sets, many examples."""
    return _properties("tests/planner/test_properties.py", first)


def sharing(first: int, _: int) -> tuple[str, list[str]]:
    """The same where GPUs are shared, estimates are wrong, users have limits and outsiders come and go."""
    return _properties("tests/planner/test_sharing_properties.py", first)


def description(first: int, _: int) -> tuple[str, list[str]]:
    """Whatever the OpenAPI description allows, asked of a private and of a box server: no 5xx, nothing opens."""
    return _properties("tests/api/test_description.py", first)


def manifests(first: int, _: int) -> tuple[str, list[str]]:
    """Each reader of manifests with documents and texts broken at random: a job or a refusal, never another error."""
    return _properties("tests/manifests/test_fuzz.py", first)


def hostile(_: int, __: int) -> tuple[str, list[str]]:
    """One user attacks every endpoint; what another asks for is answered within a second of what it takes otherwise."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "soak", "tests/box"], cwd=ROOT, check=False)
    return "every attack once", ["an attack was felt for longer; pytest printed which"] if done.returncode else []


def slurm(_: int, __: int) -> tuple[str, list[str]]:
    """A pool on a real Slurm with accounting, whose queue forgets a job two seconds after its end."""
    missing = sorted(package for package, probe in ACCOUNTING.items() if not is_there(probe))
    if missing and not install(missing, "Slurm's accounting"):
        return "not run", [f"no {', '.join(missing)} here"]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "soak", "tests/pools"], cwd=ROOT, check=False)
    return "2 stories", ["one did not hold; pytest printed which"] if done.returncode else []


def cgroups2(_: int, __: int) -> tuple[str, list[str]]:
    """The limits of tasks under a real kernel whose control groups are all of version 2, in a virtual machine."""
    problem = prepare_machine()
    if problem:
        return "not run", [problem]
    code = run_in_machine([sys.executable, "tests/worker/version2.py"], "cgroup_no_v1=all")
    return "4 places of a server", ["a limit did not hold; pytest printed which"] if code else []


def browser(_: int, __: int) -> tuple[str, list[str]]:
    """The report of an experiment in a real browser, which lays it out and draws it."""
    if not any(is_there(name) for name in BROWSERS) and not install([BROWSER], "the report in a real browser"):
        return "not run", [f"no {BROWSER} here"]
    path = "tests/experiments/test_page.py"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "soak", path], cwd=ROOT, check=False)
    return "1 page", ["the page is not as it was meant; pytest printed how"] if done.returncode else []


def _properties(path: str, first: int) -> tuple[str, list[str]]:
    env = {**os.environ, "HYPOTHESIS_PROFILE": "soak"}
    command = [sys.executable, "-m", "pytest", "-q", path, "--timeout", "3600"]
    print(f"{path}: hypothesis seed {first}", flush=True)
    done = subprocess.run([*command, f"--hypothesis-seed={first}"], cwd=ROOT, env=env, check=False)
    failed = (
        [f"{path} does not hold with hypothesis seed {first}; pytest printed the example"] if done.returncode else []
    )
    return f"profile soak, hypothesis seed {first}", failed


TIERS: dict[str, Callable[[int, int], tuple[str, list[str]]]] = {
    "properties": properties,
    "sharing": sharing,
    "description": description,
    "manifests": manifests,
    "hostile": hostile,
    "slurm": slurm,
    "cgroups2": cgroups2,
    "browser": browser,
    "crash": crash,
    "training": training,
    "simulated": simulated,
    "keras": keras,
    "frameworks": frameworks,
    "fms": fms,
    "kubernetes": kubernetes,
    "walk": walk,
    "odd": odd,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of: {', '.join(TIERS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    problems = []
    for name in options.tiers or list(TIERS):
        began = time.monotonic()
        counts, found = TIERS[name](options.first, options.seeds)
        problems += found
        verdict = "held" if not found else f"{len(found)} problem(s)"
        took = f"{time.monotonic() - began:.0f} s"
        write(name, f"| {name} | {TIERS[name].__doc__} | {counts} | {verdict} | {took} | {_today()} |")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def write(tier: str, row: str) -> None:
    """In place of the tier's last row; the others stay."""
    lines = RESULT.read_text().splitlines() if RESULT.exists() else []
    rows = {name: line for name in TIERS for line in lines if line.startswith(f"| {name} |")}
    rows[tier] = row
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    head = [
        "# The last soak",
        "",
        f"`make soak`, or one tier with `.venv/bin/python tools/soak.py TIER`, on {machine}.",
        "",
        "| tier | what | how much | result | took | when |",
        "|---|---|---|---|---|---|",
    ]
    RESULT.write_text("\n".join([*head, *(rows[name] for name in TIERS if name in rows)]) + "\n")


def _today() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"{time.strftime('%Y-%m-%d')}, at {commit.stdout.strip()}"


if __name__ == "__main__":
    sys.exit(main())
