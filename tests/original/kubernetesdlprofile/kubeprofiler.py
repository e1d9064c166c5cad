from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class KubeProfiler:
    def __init__(self, job_manager_hostname: str, db_hostname: str) -> None:
        self._manager, self._database = job_manager_hostname, db_hostname
        self.JOBID = os.environ["JOB_UUID"]
        self.PROFILE_EACH = int(os.environ["HEARTBEAT_FREQ"])
        self.RANK = os.environ["NODE_RANK"]
        self.NODE_LIST = os.environ["NODELIST"]
        self.NUM_GPUS = int(os.environ["NUM_GPUS"])
        self.NUM_NODES = int(os.environ["NUM_NODES"])
        self.RESTARTED = os.environ.get("JOB_RESTARTED") != "FALSE"
        self.BATCH_SIZE = int(os.environ["BATCH_SIZE"])
        self.EPOCHS = int(os.environ["EPOCHS_TO_BE_DONE"])
        self.EPOCHS_DONE = int(os.environ["EPOCHS_DONE"])
        self.TRAINING_SET_SIZE = int(os.environ["TRAINING_SET_SIZE"])
        self.epoch = self.EPOCHS_DONE
        self.iterations = 0
        self.mean_iteration_duration = 0.0
        self.has_to_stop = False
        self.root_dir = f"{os.environ.get('ORIGINAL_SNAPSHOTS', '/snapshots')}/{self.JOBID}"
        if not self.RESTARTED:
            Path(self.root_dir).mkdir(parents=True)
        self._last: float | None = None
        self._epoch_began = 0.0

    def measure(self) -> None:
        now = time.time()
        if self._last is not None:
            self.iterations += 1
            self.mean_iteration_duration += (now - self._last - self.mean_iteration_duration) / self.iterations
            if self.iterations % self.PROFILE_EACH == 0:
                self._send("POST", self._database, "profiling", self._profile())
        self._last = now
        if self.has_to_stop:
            sys.exit()

    def start_epoch(self) -> None:
        self._epoch_began = time.time()
        answer = self._send("GET", self._manager, "has_to_stop")
        self.has_to_stop = answer == b"1" and self.epoch < self.EPOCHS - 1

    def end_epoch(self) -> None:
        duration = time.time() - self._epoch_began
        self._send("POST", self._database, "profiling", {**self._profile(), "epochDur": duration})
        self.epoch += 1
        self._send("POST", self._manager, "end_epoch", {"done": self.epoch})

    def end(self) -> None:
        """Nothing any more."""

    def _profile(self) -> dict[str, Any]:
        return {
            "jobid": self.JOBID,
            "timestamp": datetime.now().isoformat(),
            "iternum": self.iterations,
            "nodelist": self.NODE_LIST,
            "numgpu": self.NUM_GPUS,
            "rank": self.RANK,
            "meandur": self.mean_iteration_duration,
            "gpumem": 0,
        }

    def _send(self, method: str, host: str, word: str, body: object = None) -> bytes:
        parts = urlsplit(f"http://{host}/{word}/{self.JOBID}")
        data = None if body is None else json.dumps(body)
        connection = http.client.HTTPConnection(parts.netloc)
        try:
            connection.request(method, parts.path, data, {"Content-Type": "application/json"} if data else {})
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            print(error, flush=True)
            return b""
        finally:
            with contextlib.suppress(OSError):
                connection.close()
