"""How does a request reach the server, and what do its errors mean?"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from swell.client.place import Here, NoServer, ServerPlace
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, TooMany, Unavailable
from swell.machine.state_folder import StateFolder

if TYPE_CHECKING:
    from swell.client.remote import Remote

__all__ = ["NoServer", "NotScaled", "ServerConnection", "no_server", "path"]

KINDS: dict[str, type[SwellError]] = {
    kind.__name__: kind for kind in (Conflict, Denied, NotFound, Rejected, TooLarge, TooMany, Unavailable)
}
SHOWN_MAX = 200  # of an answer that we do not understand
LOST = (http.client.HTTPException, BrokenPipeError, ConnectionResetError, ssl.SSLError)  # a line that was cut
FOREIGN = {400: Rejected, 403: Denied, 404: NotFound, 409: Conflict}  # a door's errors have a status and words


class NotScaled(Conflict):
    """A door's words for it: ["Did not scale", 401]."""


class ServerConnection:
    """One kept-alive connection to a server; not for use by several threads at once."""

    def __init__(self, server: StateFolder | Remote) -> None:
        self.place: ServerPlace = Here(server) if isinstance(server, StateFolder) else server
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def json(self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode("utf-8", "surrogateescape")
        answer = self.raw(method, path, data, headers=headers)
        try:
            return json.loads(answer.data) if answer.data else None
        except ValueError as error:
            raise SwellError(
                f"{self.place} answers {answer.data[:SHOWN_MAX]!r}, which is not an answer of Swell; check the address"
            ) from error

    def raw(
        self, method: str, path: str, body: bytes | None = None, *, headers: dict[str, str] | None = None
    ) -> ServerAnswer:
        """Asks once more on a fresh connection if a kept one turns out to be closed, where that loses nothing."""
        may_repeat = self._http is not None and (method == "GET" or "Idempotency-Key" in (headers or {}))
        try:
            return self._ask(method, path, body, headers or {})
        except LOST as error:
            self.close()
            if may_repeat:
                return self.raw(method, path, body, headers=headers)
            doubt = (
                ""
                if method == "GET"
                else "; check with `swell ps` whether the request was carried out before you repeat it"
            )
            raise self.place.gone(f"closed the connection during a request{doubt}") from error
        except TimeoutError as error:
            self.close()
            raise self.place.silent() from error
        except BaseException:
            self.close()  # whatever happened (Ctrl-C in a long poll): its state is not known
            raise

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> ServerAnswer:
        """Who is refused has had nothing done for them: what they asked is repeated with a newer token."""
        while True:
            connection = self._http or self.place.connect()
            self._http = connection
            shown = self.place.identity()
            common = {**_authorization(shown), "Content-Type": "application/json"}
            try:
                connection.request(method, path, body, common | headers)
            except (ConnectionRefusedError, FileNotFoundError) as error:
                self.close()
                raise self.place.nobody() from error
            except PermissionError as error:
                self.close()
                raise self.place.forbidden() from error
            response = connection.getresponse()
            answer = ServerAnswer(response.status, response.read(), response)
            if self.place.is_worth_repeating(response.status, shown):
                continue
            if response.status >= 300:
                raise self._refusal(answer)
            return answer

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of an answer that has no end, until the server goes away."""
        http_connection = None
        try:
            while True:
                http_connection = self.place.connect()
                shown = self.place.identity()
                http_connection.request("GET", path, headers=_authorization(shown))
                response = http_connection.getresponse()
                if not self.place.is_worth_repeating(response.status, shown):
                    break
                http_connection.close()
            if response.status >= 300:
                raise self._refusal(ServerAnswer(response.status, response.read(), response))
            yield from response  # ends quietly, also where the line was cut
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise self.place.nobody() from error
        except PermissionError as error:
            raise self.place.forbidden() from error
        except (http.client.HTTPException, OSError):
            pass
        finally:
            if http_connection is not None:
                http_connection.close()
        raise self.place.gone("closed the connection")

    def _refusal(self, answer: ServerAnswer) -> SwellError:
        return self.place.refusal(answer.status, answer.headers["Location"], _error(answer))


class ServerAnswer:
    def __init__(self, status: int, data: bytes, response: http.client.HTTPResponse) -> None:
        self.status = status
        self.data = data
        self.headers = response.headers


def no_server(state: StateFolder) -> NoServer:
    return Here(state).nobody()


def path(*parts: object, **query: object) -> str:
    """'/api/v1/…' with everything escaped; a query value of None is left out."""
    given = {key: value for key, value in query.items() if value is not None}
    text = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    return "/api/v1/" + "/".join(quote(str(part), safe="") for part in parts) + (f"?{urlencode(text)}" if text else "")


def _authorization(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _error(answer: ServerAnswer) -> SwellError:
    try:
        found = json.loads(answer.data)
        if answer.status == 409 and isinstance(found, list):
            return NotScaled(f"{found[0]}")
        error = found["error"]
        if isinstance(error, str) and answer.status in FOREIGN:
            return FOREIGN[answer.status](error)
        return KINDS.get(error["kind"], SwellError)(error["message"])
    except (ValueError, LookupError, TypeError):
        return SwellError(f"the server answers {answer.status}: {answer.data[:SHOWN_MAX]!r}")
