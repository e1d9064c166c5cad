"""GPUs that are not there: what the driver says is in the test's hands (see standins/pynvml.py)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

STANDINS = Path(__file__).with_name("standins")


class Driver:
    """What NVML says, to whatever process has our environment."""

    def __init__(self, folder: Path, *uuids: str, total_mib: int = 40960) -> None:
        self._path = folder / "nvml.json"
        self.gpus: dict[str, dict[str, Any]] = {uuid: {"uuid": uuid, "total_mib": total_mib} for uuid in uuids}
        self.say()

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(STANDINS), "SWELL_TEST_NVML": str(self._path)}

    def say(self, *, is_broken: bool = False) -> None:
        """From now on. Whole or not at all: it may be read at this moment."""
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps({"broken": is_broken, "gpus": list(self.gpus.values())}))
        os.replace(beside, self._path)  # noqa: PTH105

    def change(self, uuid: str, **values: Any) -> None:
        self.gpus[uuid] |= values
        self.say()


def process(pid: int, used_mib: int, kind: str = "compute") -> dict[str, Any]:
    return {"pid": pid, "used_mib": used_mib, "kind": kind}
