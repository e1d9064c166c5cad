"""An experiment in the simulator, from the file to the report: resumed, never measured twice, and reported."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from swell.errors import Conflict, Rejected, Unavailable
from swell.experiments.compare import compare
from swell.experiments.events import EventKind
from swell.experiments.experiment import ContenderWanted, Experiment, parse_experiment
from swell.experiments.figures import RunEnd, RunFacts
from swell.experiments.measure import GangAsked
from swell.experiments.race import laps, race
from swell.experiments.report import write_report
from swell.experiments.results import ResultsFolder
from swell.experiments.simulated import SimulatedCluster
from swell.experiments.trace import trace
from swell.model.quantity import number_of

TEXT = "workload: tiny\ncluster: {simulator: {nodes: 4, cpus: 2}}\ncontenders: [default, swell, fifo]\nrepeats: 2\n"
EXPERIMENT = parse_experiment(TEXT, Path())
ALL = [(name, repeat) for repeat in (1, 2) for name in ("default", "swell", "fifo")]


class Counting(SimulatedCluster):
    """Says which runs were measured, and may be interrupted or break at one of them."""

    def __init__(self, *, stops_at: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__(EXPERIMENT.cluster)
        self.measured: list[tuple[str, int]] = []
        self._stops_at = stops_at
        self._error = error
        self.unclean_after: int | None = None  #: so many clean-ups succeed, the next one does not
        self.cleaned = 0

    def contender_files(self) -> dict[str, bytes]:
        name, repeat = self.measured[-1] if self.measured else ("nobody", 0)
        return {"contender.log": f"{name} {repeat}".encode()}

    def clean_up(self) -> None:
        if self.cleaned == self.unclean_after:
            raise Conflict("namespace 'swell-experiment' does not go away")
        self.cleaned += 1

    def run(
        self, contender: ContenderWanted, gangs: Sequence[GangAsked], repeat: int, experiment: Experiment, progress: Any
    ) -> Any:
        if len(self.measured) == self._stops_at:
            self._stops_at = None
            raise self._error("the scheduler went away")
        self.measured.append((contender.name, repeat))
        return super().run(contender, gangs, repeat, experiment, progress)


def measure(path: Path, cluster: SimulatedCluster) -> ResultsFolder:
    folder = ResultsFolder.prepare(path, EXPERIMENT)
    race(EXPERIMENT, cluster, folder, lambda *_: None)
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultsFolder]:
    return measure(tmp_path_factory.mktemp("race") / "results", Counting())


def test_an_interrupted_experiment_goes_on_where_it_was_and_measures_nothing_twice(
    tmp_path: Path, results: ResultsFolder
) -> None:
    first, second, third = Counting(stops_at=3), Counting(), Counting()
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "out", first)
    folder = measure(tmp_path / "out", second)
    measure(tmp_path / "out", third)

    assert (len(first.measured), len(second.measured), third.measured) == (3, 3, [])
    assert sorted([*first.measured, *second.measured]) == sorted(ALL)
    assert [run.figures for run in folder.measured()] == [run.figures for run in results.measured()]


def test_a_run_without_its_last_file_was_interrupted_and_is_measured_again(tmp_path: Path) -> None:
    folder = measure(tmp_path / "out", Counting())
    (folder.path / "runs" / "1-swell" / "run.json").unlink()
    again = Counting()
    measure(tmp_path / "out", again)
    assert again.measured == [("swell", 1)]


def test_the_order_of_contenders_is_drawn_anew_for_every_run_and_by_the_seed(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    many = replace(EXPERIMENT, repeats=20)
    orders = [[lap.contender.name for lap in laps(many, folder) if lap.repeat == number] for number in range(1, 21)]

    assert len({tuple(order) for order in orders}) > 3
    assert [lap.contender.name for lap in laps(many, folder)] == [name for order in orders for name in order]
    assert all(sorted(order) == ["default", "fifo", "swell"] for order in orders)


def test_a_contender_that_breaks_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    folder = measure(tmp_path / "out", Counting(stops_at=0, error=Unavailable))
    broken = [run for run in folder.measured() if run.facts.end is RunEnd.BROKEN]

    assert [(one.facts.detail, one.figures.done, one.figures.unfinished) for one in broken] == [
        ("the scheduler went away", 0, 12)
    ]
    assert len(folder.measured()) == 6


def test_a_run_is_recorded_before_the_cluster_is_cleaned_up_and_none_begins_on_one_that_is_not_clean(
    tmp_path: Path,
) -> None:
    """10,000 pods took longer to go than a deadline: the row that had just been measured was lost."""
    cluster = Counting()
    cluster.unclean_after = 2
    with pytest.raises(Conflict, match="does not go away"):
        measure(tmp_path / "out", cluster)
    kept = {(run.facts.contender, run.facts.repeat) for run in ResultsFolder(tmp_path / "out").measured()}
    assert (len(cluster.measured), kept) == (3, set(cluster.measured))

    again = Counting()
    folder = measure(tmp_path / "out", again)
    assert (len(again.measured), len(folder.measured()), again.cleaned) == (3, 6, 3)


def test_log_and_configuration_of_a_contender_are_kept_with_its_run_also_where_it_broke(tmp_path: Path) -> None:
    """They were in a temporary folder, which was gone when somebody asked why a contender had ended."""
    folder = measure(tmp_path / "out", Counting(stops_at=5, error=Unavailable))
    [broken] = [run.facts for run in folder.measured() if run.facts.end is RunEnd.BROKEN]
    kept = {path.parent.name: path.read_text() for path in folder.path.glob("runs/*/contender.log")}
    last = kept.pop(f"{broken.repeat}-{broken.contender}")
    assert kept == {f"{repeat}-{name}": f"{name} {repeat}" for name, repeat in ALL if (name, repeat) != _of(broken)}
    assert last in kept.values()


def _of(facts: RunFacts) -> tuple[str, int]:
    return facts.contender, facts.repeat


def test_the_cluster_is_cleaned_up_after_a_run_that_broke_or_was_interrupted(tmp_path: Path) -> None:
    broken, interrupted = Counting(stops_at=0, error=Unavailable), Counting(stops_at=2)
    measure(tmp_path / "broken", broken)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "interrupted", interrupted)
    assert (broken.cleaned, interrupted.cleaned) == (6, 3)


def test_the_simulator_says_who_clogs(results: ResultsFolder) -> None:
    ends = {run.facts.contender: run.facts.end for run in results.measured()}
    assert ends == {"default": RunEnd.STUCK, "swell": RunEnd.COMPLETE, "fifo": RunEnd.COMPLETE}
    [first, _] = [run for run in results.measured() if run.facts.contender == "default"]
    assert " of them hold nodes without being whole" in first.facts.detail
    assert first.figures.clogged > 0.9


@pytest.mark.parametrize(
    ("longest", "stuck", "ends"),
    [
        ("1s", "2m", {"default": ("out of time", 1.0), "swell": ("out of time", 1.0)}),
        ("100s", "1m", {"default": ("stuck", 60.0), "swell": ("out of time", 100.0)}),
        ("100s", "2m", {"default": ("out of time", 100.0), "swell": ("out of time", 100.0)}),
        ("1h", "2m", {"default": ("stuck", 120.0), "swell": ("complete", 180.0)}),
    ],
)
def test_no_run_takes_longer_than_the_longest_that_it_may(
    tmp_path: Path, longest: str, stuck: str, ends: dict[str, tuple[str, float]]
) -> None:
    """`longest: 1s` ran to its end, eight minutes later."""
    text = (
        f"workload: {{gangs: [{{count: 6, size: 4, duration: 60s}}]}}\nlongest: {longest}\nstuckAfter: {stuck}\n"
        "cluster: {simulator: {nodes: 4, cpus: 2}}\ncontenders: [default, swell]\n"
    )
    experiment = parse_experiment(text, Path())
    folder = ResultsFolder.prepare(tmp_path / "results", experiment)
    found = race(experiment, SimulatedCluster(experiment.cluster), folder, lambda *_: None)
    assert {one.contender: (str(one.end), round(one.watched_s)) for one in found} == ends
    for one in found:
        _, events = folder.load(one.contender, one.repeat)
        assert max(event.at for event in events) <= one.watched_s
        assert (one.end is RunEnd.COMPLETE) == (sum(event.kind is EventKind.SUCCEEDED for event in events) == 24)


@pytest.mark.parametrize(
    ("gang", "problem"),
    [
        ("size: 9", "gang-0 has 9 ranks of 1 CPU, 64 MiB and 0 GPUs each, but all empty nodes together hold 8"),
        (
            "size: 2, gpus: 1",
            "gang-0 has 2 ranks of 1 CPU, 64 MiB and 1 GPU each, but all empty nodes together hold 0",
        ),
        (
            "size: 1, cpus: 3",
            "gang-0 has 1 rank of 3 CPUs, 64 MiB and 0 GPUs each, but all empty nodes together hold 0",
        ),
    ],
)
def test_a_gang_that_would_not_fit_into_the_empty_simulated_cluster_is_refused(gang: str, problem: str) -> None:
    text = f"workload: {{gangs: [{{count: 1, memory: 64MiB, {gang}}}]}}\n" + TEXT.split("\n", 1)[1]
    experiment = parse_experiment(text, Path())
    with pytest.raises(Rejected) as refusal:
        SimulatedCluster(experiment.cluster).check(experiment)
    assert str(refusal.value) == f"{problem}; use larger nodes or more, or smaller gangs"


def test_a_folder_with_another_experiment_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = ResultsFolder.prepare(tmp_path / "out", EXPERIMENT)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(Conflict, match=r"holds another experiment \('tiny'; it differs in: seed\)"):
        ResultsFolder.prepare(tmp_path / "out", replace(EXPERIMENT, seed=2))
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(Conflict, match="holds something that is no experiment; name another folder with --outdir"):
        ResultsFolder.prepare(tmp_path, EXPERIMENT)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_measure_into_one_folder(tmp_path: Path) -> None:
    folder = ResultsFolder.prepare(tmp_path / "out", EXPERIMENT)
    with folder.locked(), pytest.raises(Conflict, match="another process is measuring into"), folder.locked():
        pass


def test_the_report_has_every_gang_and_needs_nothing_else(tmp_path: Path, results: ResultsFolder) -> None:
    page, text = write_report(results, tmp_path)
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))

    assert len(rows) == 6 * 12
    assert {row["contender"] for row in rows if row["outcome"] == "unfinished"} == {"default"}
    assert all(row["run_s"] == "2.000" for row in rows if row["outcome"] == "done")
    known = list(csv.DictReader((tmp_path / "scheduler-times.csv").read_text().splitlines()))
    done = [row for row in rows if row["outcome"] == "done"]
    assert [tuple(row.items()) for row in known] == [
        (
            ("size", row["size"]),
            ("experiment", f"size-{row['size']}"),
            ("scheduler", row["contender"]),
            ("log_time", row["run_s"]),
            ("external_recorded_time", f"{float(row['ended_s']) - float(row['bound_s']):.3f}"),
            ("submit_to_completion_time", row["total_s"]),
        )
        for row in done
    ]
    assert 0 < len(done) < len(rows)
    assert "swell" in text
    assert "default finished" in text
    html = page.read_text()
    loads = html.replace("http://www.w3.org/2000/svg", "")
    assert [word for word in ("<script", "src=", "http://", "https://") if word in loads] == []
    pictures = sorted(tmp_path.glob("*.svg"))
    charts = {"clogging", "completion", "run-time", "total-time", "utilization", "wait"}
    assert {path.stem for path in pictures} == charts | {"nodes-default", "nodes-fifo", "nodes-swell"}
    for path in pictures:
        ElementTree.fromstring(path.read_text())
        assert path.read_text().strip() in html


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="has no finished run"):
        write_report(ResultsFolder.prepare(tmp_path / "out", EXPERIMENT))
    with pytest.raises(Rejected, match="holds no experiment"):
        ResultsFolder.existing(tmp_path)


def test_names_in_an_experiment_are_text_on_the_page_and_nothing_more(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    experiment = replace(EXPERIMENT, name=evil, contenders=EXPERIMENT.contenders[1:2], repeats=1)
    folder = ResultsFolder.prepare(tmp_path / "out", experiment)
    race(experiment, SimulatedCluster(experiment.cluster), folder, lambda *_: None)
    page, _ = write_report(folder)
    assert "<img" not in page.read_text()


def test_two_experiments_are_compared_and_their_differences_said(tmp_path: Path, results: ResultsFolder) -> None:
    other = replace(EXPERIMENT, seed=2)
    folder = ResultsFolder.prepare(tmp_path / "out", other)
    race(other, SimulatedCluster(other.cluster), folder, lambda *_: None)
    lines = compare(results.path, folder.path).splitlines()

    assert lines[0].startswith("These experiments differ in seed: what changed may be due to that")
    assert [line.split()[:3] for line in lines[3:]] == [
        ["fifo", "24/24", "24/24"],
        ["swell", "24/24", "24/24"],
        ["default", *lines[-1].split()[1:3]],
    ]


def test_the_trace_of_a_gang_that_was_never_whole_does_not_contradict_itself(results: ResultsFolder) -> None:
    """One rank was bound, said one line, and the next that none was; and it was 1 ranks on 1 nodes."""
    facts, events = results.load("default", 1)
    bound: dict[str, set[int | None]] = {gang.name: set() for gang in facts.gangs}
    for event in events:
        bound[event.gang] |= {event.rank} if event.kind is EventKind.BOUND else set()
    seen = set()
    for gang in facts.gangs:
        ranks = len(bound[gang.name])
        *_, given, times = trace(results.path, gang.name, "default", 1).splitlines()
        assert given.startswith(f"  given   {number_of(ranks, 'rank')} on ")
        if ranks < gang.size:
            seen.add(min(ranks, 1))
            assert times == f"  times   none: {'the gang was never whole' if ranks else 'no rank was bound'}"
    assert seen == {0, 1}


def test_one_gang_is_followed_step_by_step(results: ResultsFolder) -> None:
    lines = trace(results.path, "gang-3", "swell", 1).splitlines()
    kinds = [line.split()[4] for line in lines if " rank 0 " in line]

    assert lines[0] == "swell, run 1, gang-3"
    assert kinds == ["created", "bound", "running", "succeeded"]
    assert "(as asked); done" in lines[-2]
    assert "NOT as asked" in trace(results.path, "gang-3", "default", 1)
    with pytest.raises(Rejected, match="has no gang 'gang-33'"):
        trace(results.path, "gang-33", "swell", 1)
    with pytest.raises(Rejected, match="has no run 3 of 'swell'"):
        trace(results.path, "gang-3", "swell", 3)
