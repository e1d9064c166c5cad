"""How does a request reach the server, and what do its errors mean?"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, TooMany, Unavailable
from swell.sockets import UnixConnection
from swell.state import StateFolder

TIMEOUT_S = 90.0  # above any long poll
KINDS: dict[str, type[SwellError]] = {
    kind.__name__: kind for kind in (Conflict, Denied, NotFound, Rejected, TooLarge, TooMany, Unavailable)
}
FOREIGN = {400: Rejected, 403: Denied, 404: NotFound, 409: Conflict}  # a door's errors have a status and words


class NotScaled(Conflict):
    """A door's words for it: ["Did not scale", 401]."""


class NoServer(Unavailable):
    """Nobody serves this state folder."""


class Connection:
    """One kept-alive connection to the server of a state folder; not for use by several threads at once."""

    def __init__(self, state: StateFolder) -> None:
        self.state = state
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def json(self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode("utf-8", "surrogateescape")
        answer = self.raw(method, path, data, headers=headers)
        return json.loads(answer.data) if answer.data else None

    def raw(
        self, method: str, path: str, body: bytes | None = None, *, headers: dict[str, str] | None = None
    ) -> Answer:
        """Asks once more on a fresh connection if a kept one turns out to be closed, where that loses nothing."""
        may_repeat = self._http is not None and (method == "GET" or "Idempotency-Key" in (headers or {}))
        try:
            return self._ask(method, path, body, headers or {})
        except (http.client.HTTPException, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if may_repeat:
                return self.raw(method, path, body, headers=headers)
            doubt = "" if method == "GET" else "; look whether it was done (swell ps) before you repeat it"
            raise NoServer(
                f"the server of {self.state} went away in the middle of a request{doubt}; {_what_to_do(self.state)}"
            ) from error
        except TimeoutError as error:
            self.close()
            raise Unavailable(
                f"the server of {self.state} did not answer within {TIMEOUT_S:g} s; see {self.state.server_log}"
            ) from error
        except BaseException:
            self.close()  # whatever happened (Ctrl-C in a long poll): its state is not known
            raise

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = self._http or self._connect()
        self._http = connection
        common = {**_identity(self.state), "Content-Type": "application/json"}
        try:
            connection.request(method, path, body, common | headers)
        except (ConnectionRefusedError, FileNotFoundError) as error:
            self.close()
            raise no_server(self.state) from error
        except PermissionError as error:
            self.close()
            raise Denied(f"you may not use the socket {self.state.socket}; {_what_to_do(self.state)}") from error
        response = connection.getresponse()
        answer = Answer(response.status, response.read(), response)
        if response.status >= 300:
            raise _error(answer)
        return answer

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of an answer that has no end, until the server goes away."""
        stream = Connection(self.state)
        try:
            http_connection = stream._connect()
            http_connection.request("GET", path, headers=_identity(self.state))
            response = http_connection.getresponse()
            if response.status >= 300:
                raise _error(Answer(response.status, response.read(), response))
            yield from response  # ends quietly, also where the line was cut
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise no_server(self.state) from error
        except (http.client.HTTPException, OSError):
            pass
        finally:
            stream.close()
        raise NoServer(f"the server of {self.state} went away; {_what_to_do(self.state)}")

    def _connect(self) -> http.client.HTTPConnection:
        if self.state.socket is not None:
            return UnixConnection(self.state.socket, timeout=TIMEOUT_S)
        address = urlsplit(str(self.state.read_json(self.state.server_file).get("url", "")))
        if not address.hostname:
            raise no_server(self.state)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT_S)


class Answer:
    def __init__(self, status: int, data: bytes, response: http.client.HTTPResponse) -> None:
        self.status = status
        self.data = data
        self.headers = response.headers


def no_server(state: StateFolder) -> NoServer:
    if state.socket is not None:
        return NoServer(f"the box server of {state} does not answer; {_what_to_do(state)}")
    return NoServer(f"no server runs for {state}; start one with `swell up -d`, or name another folder with --state")


def _what_to_do(state: StateFolder) -> str:
    if state.socket is not None:
        return "ask your administrator: systemctl status swell"
    return f"start it again with `swell up -d` ({state.server_log} may say why)"


def path(*parts: object, **query: object) -> str:
    """'/api/v1/…' with everything escaped; a query value of None is left out."""
    given = {key: value for key, value in query.items() if value is not None}
    text = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    return "/api/v1/" + "/".join(quote(str(part), safe="") for part in parts) + (f"?{urlencode(text)}" if text else "")


def _identity(state: StateFolder) -> dict[str, str]:
    """A private server wants its token; on a box server's socket the kernel says who we are."""
    if state.socket is not None:
        return {}
    try:
        return {"Authorization": f"Bearer {state.token.read_text().strip()}"}
    except PermissionError as error:
        raise Denied(f"the token {state.token} may not be read; this server belongs to somebody else") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_server(state) from error


def _error(answer: Answer) -> SwellError:
    try:
        found = json.loads(answer.data)
        if answer.status == 409 and isinstance(found, list):
            return NotScaled(f"{found[0]}")
        error = found["error"]
        if isinstance(error, str) and answer.status in FOREIGN:
            return FOREIGN[answer.status](error)
        return KINDS.get(error["kind"], SwellError)(error["message"])
    except (ValueError, LookupError, TypeError):
        return SwellError(f"the server answers {answer.status}: {answer.data[:200]!r}")
