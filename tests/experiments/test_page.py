"""Does a real browser show the report? Chromium without a window lays it out and draws it."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from tools.soak import BROWSER, BROWSERS

from swell.experiments.experiment import parse_experiment
from swell.experiments.race import race
from swell.experiments.report import write_report
from swell.experiments.results import ResultsFolder
from swell.experiments.simulated import SimulatedCluster

#: 100 MB of packages for one page: not in `make test`. `.venv/bin/python tools/soak.py browser` installs and runs it.
pytestmark = pytest.mark.soak

TEXT = "workload: tiny\ncluster: {simulator: {nodes: 4, cpus: 2}}\ncontenders: [default, swell]\nrepeats: 2\n"


def browse(*words: str) -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found is not None, f"this test needs a browser: apt-get install -y {BROWSER}"
    argv = [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = parse_experiment(TEXT, Path())
    folder = ResultsFolder.prepare(tmp_path_factory.mktemp("page") / "out", experiment)
    race(experiment, SimulatedCluster(experiment.cluster), folder, lambda *_: None)
    return write_report(folder)[0]


def test_a_browser_reads_the_page_as_it_was_meant(page: Path) -> None:
    seen = browse("--dump-dom", page.as_uri())

    assert "<title>tiny</title>" in seen
    assert "default finished" in seen
    assert len(re.findall(r"<figure id=", seen)) == 8
    assert len(re.findall(r"<tr>", re.findall(r'<table id="summary">.*?</table>', seen, re.DOTALL)[0])) == 3


def test_a_browser_draws_the_page_with_more_than_one_color(page: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    browse(f"--screenshot={picture}", "--window-size=1000,4200", page.as_uri())
    data = picture.read_bytes()

    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1000, 4200)
    assert len(data) > 50_000  # an empty page of that size has a few thousand bytes
