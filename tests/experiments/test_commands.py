"""`swell experiment` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from swell.cli.root import swell
from swell.experiments.workloads import included


def typed(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(swell, ["experiment", *words])
    return result.exit_code, result.output


def test_a_run_ends_with_its_table_and_a_second_one_measures_nothing(tmp_path: Path) -> None:
    words = ("run", "--config-name", "tiny", "--iters", "6", "--batches", "1", "--outdir", str(tmp_path / "out"))
    code, text = typed(*words)
    assert code == 0
    assert "tiny: 2 runs (default, swell; 1 each)" in text
    assert "Only swell finished all 6 gangs." in text or "swell" in text
    assert (tmp_path / "out/report/index.html").is_file()

    code, again = typed(*words)
    assert code == 0
    assert "run 1 of 2" not in again


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "or an included workload with --config-name: mixed is the default"),
        *[
            (
                ("--config-name", "mixed", option),
                f"contender {option[2:]!r} has no model in the simulator; measure it on",
            )
            for option in ("--kueue", "--fluence", "--coscheduling")
        ],
        (("--config-name", "mixed", "--contender", "kueue"), "name it with --kubeconfig FILE or --context NAME"),
        (("--config-name", "clog"), "there is no included workload 'clog'"),
        (("-f", "gone.yaml"), "gone.yaml: the experiment cannot be read"),
        (("-f", "a.yaml", "--config-name", "tiny"), "give only one of them"),
        (("--config-name", "tiny", "--kueue"), "contender 'kueue' has no model in the simulator"),
        (("--config-name", "tiny", "--fluence", "--coscheduling"), "both own the PodGroup kind"),
        (("--config-name", "tiny", "--cluster", "kubernetes"), "add -y to run without being asked"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = typed("run", *words)
    assert code == 2
    assert problem in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mixed", [(2, 2), (3, 2), (4, 2), (5, 2), (6, 2)]),
        ("lammps-kind", [(1, 2), (2, 2), (3, 2)]),
        ("lammps-two", [(2, 2)]),
        ("lammps-two-three", [(2, 2), (3, 2)]),
        ("lammps-two-three-cpu", [(2, 1), (3, 2)]),
        ("lammps-two-three-four", [(2, 2), (3, 2), (4, 2)]),
        ("lammps-six", [(2, 2), (3, 2), (4, 2), (5, 2), (6, 2)]),
        ("lammps-mixed", [(2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]),
        ("lammps-large", [(4, 2), (8, 2), (16, 2)]),
    ],
)
def test_every_name_of_the_scheduler_experiments_is_known_with_its_sizes_and_cpus(
    name: str, shapes: list[tuple[int, int]]
) -> None:
    found = included(name).shapes
    assert sorted((one.size_min, one.cpus_milli // 1000) for one in found) == shapes
    assert {one.size_max - one.size_min for one in found} == {0}
    assert {one.count for one in found} == {10}


def test_what_is_included_is_listed() -> None:
    code, text = typed("list")
    assert code == 0
    assert "clogging" in text
    assert "coscheduling" in text
