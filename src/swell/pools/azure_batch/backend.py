"""Send to Azure what `render` made, and hand its answers to `parse`. The only file that knows azure-batch."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from azure.batch import BatchClient
from azure.batch.models import BatchTaskCreateOptions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError, HttpResponseError

from swell.errors import NotFound, SwellError, Unavailable
from swell.pools.azure_batch.options import AzureBatchOptions
from swell.pools.azure_batch.parse import DONE, parse_backend_id, parse_tasks, refusal, surplus
from swell.pools.azure_batch.render import log_address, render_task, render_text
from swell.pools.backend import BackendWorker, WorkerOrder

T = TypeVar("T")
Document = dict[str, Any]

CONNECT_S = 10.0
ANSWER_S = 30.0
TRIES_MORE = 2
PAUSE_S = 0.5
LOG_FILE = "stderr.txt"  # a worker writes its log there
PIECE = 1 << 16


class AzureBatchBackend:
    def __init__(
        self, pool: str, options: AzureBatchOptions, *, answer_s: float = ANSWER_S, pause_s: float = PAUSE_S
    ) -> None:
        self._pool = pool
        self._options = options
        self._answer_s = answer_s
        self._client = BatchClient(
            options.service_url.rstrip("/"),
            AzureNamedKeyCredential(options.account_name, options.account_key),
            connection_timeout=min(CONNECT_S, answer_s),
            read_timeout=answer_s,
            retry_total=TRIES_MORE,
            retry_backoff_factor=pause_s,
        )

    def observe(self) -> tuple[BackendWorker, ...]:
        doing = f"listing the workers of pool {self._pool} on Azure Batch"
        job, place = self._options.job_id, self._options.service_url
        return asked(doing, lambda: parse_tasks(self._tasks(), self._pool, job, place))

    def launch(self, order: WorkerOrder) -> str:
        doing = f"launching worker {order.id} on Azure Batch"
        task = BatchTaskCreateOptions(render_task(order, self._options))
        asked(doing, lambda: self._client.create_task(self._options.job_id, task), done=DONE - {"TaskNotFound"})
        self._remove_surplus()
        return f"{self._options.job_id}/{order.id}"

    def cancel(self, backend_id: str, *, is_forced: bool = False) -> None:
        """Batch knows one way only: the container is ended."""
        doing = f"ending task {backend_id[:100]} on Azure Batch"
        with suppress(NotFound):
            task = parse_backend_id(backend_id, self._options.job_id)
            asked(doing, lambda: self._client.terminate_task(self._options.job_id, task), done=DONE)

    def logs(self, backend_id: str) -> Iterator[bytes]:
        """From the machine, and when that is gone, what was uploaded when the task ended."""
        doing = f"reading the log of task {backend_id[:100]} on Azure Batch"
        task = parse_backend_id(backend_id, self._options.job_id)
        try:
            pieces = asked(doing, lambda: self._client.download_task_file(self._options.job_id, task, LOG_FILE))
        except NotFound as error:
            yield from self._uploaded(doing, task, error)
            return
        yield from _pieces(doing, iter(pieces))

    def render(self, order: WorkerOrder) -> str:
        return render_text(order, self._options)

    def _tasks(self) -> list[Document]:
        """All of the job that begin with the pool's name; those that have ended, too."""
        found = self._client.list_tasks(
            self._options.job_id,
            filter=f"startswith(id,'{self._pool}-')",
            select=["id", "state", "executionInfo"],
            raw_response_hook=refuse_no_list,
        )
        return [task.as_dict() for task in found]

    def _uploaded(self, doing: str, task: str, before: SwellError) -> Iterator[bytes]:
        address = log_address(self._options, task, LOG_FILE)
        try:
            with urllib.request.urlopen(address, timeout=self._answer_s) as answer:  # noqa: S310  https by the options
                while piece := answer.read(PIECE):
                    yield piece
        except urllib.error.HTTPError as error:
            kind = Unavailable if error.code >= 500 else NotFound
            uploaded = f"nor in the log container (HTTP {error.code}; a log is uploaded when its worker has ended)"
            raise kind(f"{before}; {uploaded}") from error
        except OSError as error:
            raise Unavailable(f"{doing}: the log container cannot be reached: {error}") from error

    def _remove_surplus(self) -> None:
        """A failure of this is not one of the launch, and the next launch does it again."""
        doing = f"deleting tasks of pool {self._pool} that have ended"
        with suppress(SwellError):
            for task in asked(doing, lambda: surplus(self._tasks(), self._pool)):
                asked(doing, lambda one=task: self._client.delete_task(self._options.job_id, one), done=DONE)  # type: ignore[misc]


def refuse_no_list(response: Any) -> None:
    """The library takes a page without a list for an empty one."""
    if response.http_response.status_code == 200 and not isinstance(response.http_response.json()["value"], list):
        raise ValueError("its value is no list")


def _pieces(doing: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    while (piece := asked(doing, lambda: next(pieces, None))) is not None:
        yield piece


def asked(doing: str, ask: Callable[[], T], done: frozenset[str] | set[str] = frozenset()) -> T | Any:
    """What it returns, or one of our errors. `done`: codes of refusals that are no failure here; then None."""
    try:
        return ask()
    except SwellError:
        raise
    except HttpResponseError as error:
        model = getattr(error, "model", None)
        code = str(getattr(model, "code", None) or "")
        if code in done:
            return None
        status = int(error.status_code or 0)
        said = getattr(getattr(model, "message", None), "value", None) or error.reason or error.message
        raise refusal(doing, status, code, str(said or "")) from error
    except AzureError as error:
        raise Unavailable(f"{doing}: {error.message or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"{doing}: an answer that cannot be read: {error!r}") from error
