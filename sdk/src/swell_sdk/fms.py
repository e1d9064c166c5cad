"""How does fms-hf-tuning's trainer controller tell that a checkpoint has been saved?

An operation for its YAML (examples/fms-hf-tuning/notifier.yaml): `should_notify`, triggered by `on_save`. Under Swell
it reports the checkpoint; with a `url` it also puts the four fields that older job managers expect there.

    callback = TrainerControllerCallback("notifier.yaml")
    callback.register_operation_handlers([Notifier])
"""

from __future__ import annotations

import http.client
import importlib
import json
import socket
import threading
import time
from typing import Any, Dict, Optional
from urllib.parse import urlsplit

from swell_sdk import trainer
from swell_sdk.attachment import attach
from swell_sdk.voice import say

PUT_S = 5.0

_Operation: Any = importlib.import_module("tuning.trainercontroller.operations").Operation


class Notifier(_Operation):  # type: ignore[misc]
    def __init__(self, url: Optional[str] = None, **kwargs: Any) -> None:
        self._url = url
        super().__init__(**kwargs)

    def should_notify(
        self, trainer_state: Any = None, tc_metrics: Any = None, state: Any = None, args: Any = None, **_: Any
    ) -> None:
        """`state` is newer than the metric, which is not computed at a save; older controllers hand only that."""
        newest = state or trainer_state or trainer.read(tc_metrics, "trainer_state")
        if newest is None or trainer.read(newest, "is_world_process_zero", True) is False:
            return
        rank = trainer.read(args, "process_index")
        trainer.report_save(attach(rank=rank), args, newest)
        if self._url:
            # Not a daemon: the last one is sent before the process ends, which waits for it within its time-out.
            threading.Thread(target=send_put, args=(self._url, render_put(newest, args)), name="swell-put").start()


def render_put(state: Any, args: Any) -> Dict[str, Any]:
    return {
        "job_name": socket.gethostname().partition("-master")[0],
        "last_checkpoint_time": time.time(),
        "completed_epochs": float(trainer.read(state, "epoch") or 0.0),
        "total_epochs": trainer.read(state, "num_train_epochs") or trainer.read(args, "num_train_epochs"),
    }


def send_put(url: str, document: Dict[str, Any]) -> None:
    parts = urlsplit(url)
    try:
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=PUT_S)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("PUT", path, json.dumps(document), {"Content-Type": "application/json"})
        status = connection.getresponse().status
        connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        say("put", f"sending a checkpoint's time to {url}: {error}")
        return
    if status >= 400:
        say("put", f"sending a checkpoint's time to {url}: the server answered {status}")
