"""docs/moving/: every word of the other systems has a row, and every row names a test that runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swell.cli.doors.run_scheduler import main as run_scheduler
from swell.cli.doors.scheduler import situation, state

ROOT = Path(__file__).parents[1]
MOVING = ROOT / "docs/moving"
PAGES = ("genai-workload-manager.md", "kubeprofiler.md")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ENDPOINT = re.compile(r"@router\.(get|post|put|delete)\(\"(/\w+)")
#: what scripts of run-scheduler read, and what genai's services were configured with
VARIABLES = {
    "genai-workload-manager.md": "MHOST MPORT FLASK_PORT MANAGER_API_URL NEXT_CHECKPOINT_THRESHOLD",
    "kubeprofiler.md": "MASTER_PORT WORLD_SIZE MASTER_ADDR NODE_RANK TF_CONFIG JOB_UUID JOB_RESTARTED RESERVED_MEM "
    "EPOCHS_DONE HEARTBEAT_FREQ NODELIST NUM_GPUS NUM_NODES PL_TORCH_DISTRIBUTED_BACKEND BATCH_SIZE EPOCHS_TO_BE_DONE "
    "TRAINING_SET_SIZE LOCAL_RANK",
}


def rows(page: str) -> list[list[str]]:
    """Of the tables that name tests: what is theirs first, the test last."""
    found, is_inside = [], False
    for line in (MOVING / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        is_inside = bool(cells) and (is_inside or cells[-1] == "run by")
        if is_inside and cells[-1] != "run by" and not cells[0].startswith("---"):
            found.append(cells)
    return found


def theirs(page: str) -> str:
    return " ".join(row[0] for row in rows(page))


@pytest.mark.parametrize(("page", "least"), [("genai-workload-manager.md", 28), ("kubeprofiler.md", 55)])
def test_every_row_names_a_test_that_exists(page, least):
    found = rows(page)
    assert len(found) >= least
    for row in found:
        assert len(row) == 4, row
        match = TEST.fullmatch(row[-1])
        assert match is not None, row
        assert f"def {match[2]}(" in (ROOT / match[1]).read_text(), row


@pytest.mark.parametrize(
    ("page", "door"), [("genai-workload-manager.md", "genai"), ("kubeprofiler.md", "kubeprofiler")]
)
def test_every_endpoint_has_a_row(page, door):
    code = (ROOT / f"src/swell/api/doors/{door}.py").read_text()
    served = {f"{method.upper()} {path}" for method, path in ENDPOINT.findall(code)}
    written = set(re.findall(r"`(GET|POST|PUT|DELETE) (/\w+)", theirs(page)))
    assert {f"{method} {path}" for method, path in written} == served


def test_every_flag_has_a_row():
    words = theirs("kubeprofiler.md")
    for command in (run_scheduler, state, situation):
        for parameter in command.params:
            if parameter.name != "state" and parameter.opts[0].startswith("--"):
                assert parameter.opts[0] in words, parameter.opts


@pytest.mark.parametrize("page", PAGES)
def test_every_variable_has_a_row(page):
    missing = [name for name in VARIABLES[page].split() if f"`{name}`" not in theirs(page)]
    assert missing == []


def test_the_index_has_a_line_for_each_of_the_five_systems():
    index = (MOVING / "README.md").read_text()
    assert all(f"]({page})" in index for page in PAGES)
    for system in ("CodaLab", "AIchor", "Fluence"):
        assert system in index
