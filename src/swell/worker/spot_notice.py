"""Does EC2 take this machine back? It says so two minutes before, at an address that only the machine itself reaches.

Asked every few seconds in a thread of its own. A container reaches the address only if the machine's launch template
allows a second hop (`HttpPutResponseHopLimit: 2`); where it cannot be reached the worker runs on, and its log says so.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from urllib.parse import urlsplit

ENDPOINT = "http://169.254.169.254"
ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # as every AWS SDK has it
ACTION_PATH = "/latest/meta-data/spot/instance-action"
TOKEN_PATH = "/latest/api/token"  # noqa: S105
TOKEN_S = 21600  # as long as a token may last
PAUSE_S = 5.0  # what AWS advises
UNREACHED_PAUSE_S = 60.0
ANSWER_S = 2.0
BYTES_MAX = 4096

log = logging.getLogger(__name__)


def parse_notice(status: int, body: bytes) -> str | None:
    """What happens to the machine and when, in EC2's words. None: nothing is announced."""
    if status != 200:
        return None
    try:
        said = json.loads(body)
        return f"{said['action']} at {said['time']}"[:200]
    except (ValueError, KeyError, TypeError):
        return None


class SpotNotice:
    """Calls `announced` once, from its own thread."""

    def __init__(
        self, announced: Callable[[str], None], environ: Mapping[str, str], *, pause_s: float = PAUSE_S
    ) -> None:
        self._announced = announced
        self._place = urlsplit(environ.get(ENDPOINT_VARIABLE) or ENDPOINT)
        self._pause_s = pause_s
        self._token = ""
        self._is_reached = True
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spot-notice", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            notice = self._ask()
            if notice is not None:
                return self._announced(notice)
            pause_s = self._pause_s if self._is_reached else max(self._pause_s, UNREACHED_PAUSE_S)
        return None

    def _ask(self) -> str | None:
        try:
            status, body = self._get()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._is_reached:
                log.warning("EC2's spot notices cannot be read, and the worker runs on without: %s", error)
            self._is_reached = False
            return None
        self._is_reached = True
        return parse_notice(status, body)

    def _get(self) -> tuple[int, bytes]:
        headers = {"X-aws-ec2-metadata-token": self._token} if self._token else {}
        status, body = self._request("GET", ACTION_PATH, headers)
        if status != 401:  # the token has ended, or there is none yet
            return status, body
        made, token = self._request("PUT", TOKEN_PATH, {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)})
        if made != 200:
            raise OSError(f"the token is refused with HTTP {made}")
        self._token = token.decode("ascii").strip()
        return self._request("GET", ACTION_PATH, {"X-aws-ec2-metadata-token": self._token})

    def _request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        host, port = self._place.hostname or "", self._place.port
        with closing(http.client.HTTPConnection(host, port, timeout=ANSWER_S)) as connection:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(BYTES_MAX)
