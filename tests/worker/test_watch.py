"""Whose GPU memory it is, what outsiders use, and for how long a job's GPUs have been idle."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from swell.model.cluster import Device
from swell.model.job import AttemptId, IdlePolicy
from swell.model.launch import GpuSeen
from swell.worker.nvml import GpuProcess, Reading
from swell.worker.processes import Trace, trace
from swell.worker.sampler import Sample
from swell.worker.watch import Claim, Watch, outsiders_mib, owner_of, told_outsiders, told_use

ONE, TWO = AttemptId(1, 1), AttemptId(2, 1)
ANN, BEN = 1001, 1002
CLAIMS = (Claim(ONE, {100: 0, 101: 1}, ("a",), ANN), Claim(TWO, {200: 0}, ("a", "b"), BEN))
RUNNING = {claim.attempt: claim for claim in CLAIMS}
GROUPS = ("/swell-ours", "/system.slice/swell.service/swell-ours")
STRANGER = Trace(900, 900)


def marked(attempt: str, store: str = "ours", index: str = "0", *, uid: int | None = BEN) -> Trace:
    told = (("SWELL_ATTEMPT", attempt), ("SWELL_STORE", store), ("SWELL_TASK_INDEX", index))
    return Trace(900, 900, uid, told=told)


def in_group(path: str, *told: tuple[str, str], uid: int = ANN) -> Trace:
    return Trace(900, 900, uid, ("/user.slice", path), told)


def reading(
    *processes: GpuProcess, gpu: str = "a", used_mib: int | None = 0, utilization: int | None = 0, lists: bool = True
) -> Reading:
    return Reading(gpu, 16384, used_mib, utilization, processes if lists else None)


def sampled(at: float, *readings: Reading, **traces: Trace) -> Sample:
    """Traces by pid, as in p10=…"""
    return Sample(at, readings, {int(name[1:]): one for name, one in traces.items()})


# -- whose it is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traced", "owner"),
    [
        (Trace(101, 7), (ONE, 1)),  # in the keeper's group
        (Trace(7, 200), (TWO, 0)),  # left the group, not the session
        (STRANGER, None),
        (marked("2.1"), (TWO, 0)),  # left both, with its environment
        (marked("1.1", index="1", uid=ANN), (ONE, 1)),
        (marked("9.1"), None),  # a job that does not run here: anybody could say so of theirs
        (marked("2.1", store="theirs"), None),  # another server's job of the same number
        (marked("nonsense"), None),
        (Trace(900, 900, BEN, told=(("SWELL_ATTEMPT", "2.1"),)), None),  # no word of whose job 2 it is
        (in_group("/swell-ours/2.1.0"), (TWO, 0)),
        (in_group("/swell-ours/1.1.1/below"), (ONE, 1)),
        (in_group("/swell-ours/2.1.tensorboard"), (TWO, 0)),
        (in_group("/system.slice/swell.service/swell-ours/1.1.0"), (ONE, 0)),
        (in_group("/swell-ours/12.1.0"), None),  # an attempt that does not run here
        (in_group("/swell-theirs/2.1.0"), None),
        (in_group("/docker/2.1.0"), None),
    ],
)
def test_a_process_is_known_by_its_session_its_control_group_or_its_marks(traced: Trace, owner: object) -> None:
    assert owner_of(traced, "ours", RUNNING, GROUPS) == owner


@pytest.mark.parametrize(
    "lie",
    [
        marked("2.1", uid=ANN),
        marked("2.1", uid=None),
        in_group("/user.slice/user-1001.slice/swell-ours/2.1.0"),  # users make folders below their own
        in_group("/user.slice/swell-ours/2.1.0", ("SWELL_STORE", "ours"), ("SWELL_ATTEMPT", "2.1")),
    ],
)
def test_nobody_can_charge_their_gpu_memory_to_somebody_elses_job(lie: Trace) -> None:
    """Ann wrote the marks of Ben's job into the environment of her own process, and her memory was counted as his."""
    watch = Watch("ours")
    watch.groups = GROUPS
    for at in (0, 2):
        watch.take(sampled(at, reading(GpuProcess(66, 4000)), p66=lie), CLAIMS)
    assert watch.seen(TWO) == GpuSeen()
    offered = watch.devices((Device("a", 16384, "A100"),))
    assert [device.outsiders_mib for device in offered] == [4096]


@pytest.mark.parametrize("index", ["9" * 5000, "²", "-1", "", "7"])
def test_what_a_process_says_of_its_task_only_counts_if_there_is_such_a_task(index: str) -> None:
    """An index of 5,000 digits ended root's worker, again and again."""
    assert owner_of(marked("1.1", index=index, uid=ANN), "ours", RUNNING, GROUPS) == (ONE, 0)


def test_a_process_is_traced_by_what_the_kernel_says_of_it() -> None:
    env = {"SWELL_STORE": "ours", "SWELL_ATTEMPT": "1.1", "OTHER": "x"}
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found, unasked = trace(child.pid), trace(child.pid, reads_environment=False)
        child.communicate(b"")
    assert found is not None
    assert (found.group, found.session) == (child.pid, child.pid)
    assert sorted(found.told) == [("SWELL_ATTEMPT", "1.1"), ("SWELL_STORE", "ours")]
    assert all(path.startswith("/") for path in found.cgroups)
    assert found.uid == os.getuid()
    assert unasked == replace(found, told=())
    assert trace(child.pid) is None


def test_memory_is_counted_for_the_task_that_uses_it_over_all_its_gpus() -> None:
    watch = Watch("ours")
    on_a = reading(GpuProcess(10, 1000), GpuProcess(11, 500), GpuProcess(20, 3000), gpu="a")
    on_b = reading(GpuProcess(20, 4000), GpuProcess(21, 300), gpu="b")
    traces = {"p10": Trace(100, 100), "p11": Trace(101, 101), "p20": Trace(200, 200), "p21": marked("2.1", uid=BEN)}
    watch.take(sampled(0, on_a, on_b, **traces), CLAIMS)
    assert watch.seen(ONE) == GpuSeen(memory_mib=1500, peak_mib=1000)  # two tasks on one GPU have a peak each
    assert watch.seen(TWO) == GpuSeen(memory_mib=7300, peak_mib=4300)
    watch.take(sampled(2, reading(), reading(gpu="b")), CLAIMS)
    assert (watch.seen(ONE), watch.seen(TWO)) == (GpuSeen(0, 1000), GpuSeen(0, 4300))


def test_what_was_not_measured_is_not_seen() -> None:
    watch = Watch("ours")
    watch.take(sampled(0, reading(gpu="c")), CLAIMS)
    assert watch.seen(ONE) is None


def test_what_the_driver_cannot_say_leaves_the_last_amount() -> None:
    watch = Watch("ours")
    for at, used in ((0, 1000), (2, None), (4, 2000)):
        watch.take(sampled(at, reading(GpuProcess(20, used)), p20=Trace(200, 200)), CLAIMS)
        if used is None:
            assert watch.seen(TWO) == GpuSeen(1000, 1000)
    assert watch.seen(TWO) == GpuSeen(2000, 2000)


def test_runs_that_are_over_are_forgotten() -> None:
    watch = Watch("ours")
    watch.take(sampled(0, reading(GpuProcess(20, 5)), p20=Trace(200, 200)), CLAIMS)
    watch.keep([ONE])
    assert (watch.seen(ONE), watch.seen(TWO)) == (GpuSeen(), None)


# -- outsiders -----------------------------------------------------------------------------------------------


def outsiders(watch: Watch) -> tuple[int, bool]:
    [device] = watch.devices((Device("a", 16384, "m"),))
    return device.outsiders_mib, device.is_watched


def test_what_belongs_to_no_task_is_an_outsiders() -> None:
    watch = Watch("ours")
    for at in (0, 2):
        watch.take(sampled(at, reading(GpuProcess(90, 900), GpuProcess(20, 50)), p90=STRANGER, p20=marked("2.1")), [])
    assert outsiders(watch) == (1024, True)
    watch.take(sampled(4, reading()), [])
    assert outsiders(watch) == (0, True)


def test_one_that_is_seen_once_was_just_ending() -> None:
    watch = Watch("ours")
    for at, pid in ((0, 90), (2, 91), (4, 92)):
        watch.take(sampled(at, reading(GpuProcess(pid, 900))), [])
        assert outsiders(watch) == (0, True)
    watch.take(sampled(6, reading(GpuProcess(92, 900))), [])
    assert outsiders(watch) == (1024, True)


def test_a_gpu_that_does_not_answer_keeps_its_outsiders() -> None:
    watch = Watch("ours")
    for at in (0, 2):
        watch.take(sampled(at, reading(GpuProcess(90, 900)), p90=STRANGER), [])
    watch.take(sampled(4, reading(gpu="b")), [])
    assert outsiders(watch) == (1024, True)
    watch.take(sampled(6, reading(lists=False)), [])
    assert outsiders(watch) == (1024, False)


def test_a_gpu_that_stops_answering_is_not_offered_until_it_does_again() -> None:
    here = (Device("a", 16384, "m"), Device("b", 16384, "m"), Device("sim-0", 16384, "m", simulated=True))
    watch = Watch("ours", here)
    offered = [tuple(device.id for device in watch.devices(here))]
    for at, answering in enumerate(("a", "a", "a", "", "", "", "b", "ab")):
        watch.take(sampled(at, *[reading(gpu=gpu) for gpu in answering]), [])
        offered.append(tuple(device.id for device in watch.devices(here)))
    both, only_a, none, only_b = ("a", "b", "sim-0"), ("a", "sim-0"), ("sim-0",), ("b", "sim-0")
    assert offered == [both, both, both, only_a, only_a, only_a, none, only_b, both]


@pytest.mark.parametrize(
    ("strangers", "used_mib", "expected"),
    [
        ([], 5000, 0),
        ([GpuProcess(1, 700), GpuProcess(2, 300)], 5000, 1000),
        ([GpuProcess(1, 700), GpuProcess(2, 300, is_graphics=True)], 5000, 700),  # a desktop
        ([GpuProcess(2, 3000, is_graphics=True)], 5000, 3000),  # something that draws in earnest
        ([GpuProcess(1, None)], 5000, 4000),  # all that is used and not ours
        ([GpuProcess(1, None)], None, 64),  # somebody is there, more is not known
        ([GpuProcess(1, None)], 1000, 64),
    ],
)
def test_outsiders_are_added_up(strangers: list[GpuProcess], used_mib: int | None, expected: int) -> None:
    assert outsiders_mib(reading(used_mib=used_mib), strangers, ours_mib=1000) == expected


@pytest.mark.parametrize(
    ("told", "now", "expected"),
    [
        (0, 63, 0),
        (0, 64, 256),
        (0, 257, 512),
        (512, 513, 768),  # more is told at once
        (512, 300, 512),
        (512, 200, 512),  # a little less is not
        (768, 200, 256),
        (512, 10, 0),
    ],
)
def test_outsiders_are_told_in_steps(told: int, now: int, expected: int) -> None:
    assert told_outsiders(told, now) == expected


@pytest.mark.parametrize(
    ("told", "now", "expected"),
    [
        (GpuSeen(1000, 1000), GpuSeen(1255, 1000), GpuSeen(1000, 1000)),
        (GpuSeen(1000, 1000), GpuSeen(744, 1000), GpuSeen(744, 1000)),
        (GpuSeen(1000, 1000), GpuSeen(1001, 1001), GpuSeen(1001, 1001)),
        (GpuSeen(100, 100), GpuSeen(0, 100), GpuSeen(0, 100)),
        (GpuSeen(100, 100), GpuSeen(101, 100, 30.0), GpuSeen(100, 100, 30.0)),
    ],
)
def test_a_jobs_use_is_told_when_it_has_changed_enough(told: GpuSeen, now: GpuSeen, expected: GpuSeen) -> None:
    assert told_use(told, now) == expected


# -- idle GPUs -----------------------------------------------------------------------------------------------


def test_utilisation_is_the_mean_of_the_gpus_that_tell_it_over_half_a_minute() -> None:
    watch = Watch("ours")
    assert watch.utilization(0.0) is None
    watch.take(sampled(0.0, reading(utilization=100), reading(gpu="b", utilization=50)), ())
    watch.take(sampled(2.0, reading(utilization=26), reading(gpu="b", utilization=None)), ())
    watch.take(sampled(4.0, reading(utilization=None)), ())
    assert [watch.utilization(now) for now in (4.0, 31.0, 33.0)] == [0.505, 0.26, None]


def quiet_after(*levels: tuple[int | None, int | None] | None, seconds: float = 5.0) -> float:
    """What is told after samples of both GPUs, so far apart; None: there was none."""
    watch = Watch("ours")
    claim = Claim(TWO, {200: 0}, ("a", "b"), ANN, IdlePolicy(10, 20.0))
    for number, both in enumerate(levels):
        if both is not None:
            readings = [reading(gpu=gpu, utilization=level) for gpu, level in zip("ab", both, strict=True)]
            watch.take(sampled(number * seconds, *readings), [claim])
    seen = watch.seen(TWO)
    assert seen is not None
    return seen.quiet_s


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([(0, 0)], 0.0),  # it has only begun
        ([(0, 0), (9, 0), (0, 9), (0, 0), (0, 0)], 20.0),
        ([(0, 0), (0, 0), (0, 10)], 0.0),  # one sample of one GPU is enough
        ([(0, 0), (100, 0), (0, 0), (0, 0)], 10.0),
        ([(0, 0), (0, 0), None, None, (0, 0), (0, 0)], 10.0),  # nobody looked
        ([(0, 0), (0, 0), (0, None), (0, 0), (0, 0)], 10.0),  # one GPU said nothing
        ([(None, None), (None, None)], 0.0),
        ([(None, 50), (0, 0), (0, 0)], 10.0),
    ],
)
def test_gpus_are_idle_while_no_sample_reaches_the_threshold(
    levels: list[tuple[int | None, int | None] | None], expected: float
) -> None:
    assert quiet_after(*levels) == expected


def test_quiet_is_told_four_times_in_a_window() -> None:
    told = [quiet_after(*[(0, 0)] * count, seconds=1.0) for count in range(1, 23)]
    assert told == [0.0] * 5 + [5.0] * 5 + [10.0] * 5 + [15.0] * 5 + [20.0] * 2


def test_without_a_policy_nothing_is_quiet() -> None:
    watch = Watch("ours")
    for at in range(0, 100, 5):
        watch.take(sampled(at, reading(), reading(gpu="b")), CLAIMS)
    assert watch.seen(TWO) == GpuSeen()
