"""Send to the API server what `render` made, and hand its answers to `parse`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import yaml

from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.api_client import ApiClient, PatchKind, Selection
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import PODS, SECRETS
from swell.errors import NotFound, SwellError
from swell.pools.backend import BackendWorker, WorkerOrder
from swell.pools.kubernetes.options import KubernetesOptions
from swell.pools.kubernetes.parse import parse_backend_id, parse_pods, surplus
from swell.pools.kubernetes.render import CONTAINER, POOL_LABEL, render_pod, render_secret

AGENT = "swell-pool"
ANSWER_S = 20.0


class KubernetesPoolBackend:
    def __init__(self, pool: str, options: KubernetesOptions, access: Access, *, answer_s: float = ANSWER_S) -> None:
        self._pool = pool
        self._options = options
        self._namespace = options.namespace or access.namespace
        self._client = ApiClient(access, agent=AGENT, answer_s=answer_s)
        self._selection = Selection(PODS, self._namespace, labels=f"{POOL_LABEL}={pool}")

    def close(self) -> None:
        self._client.close()

    def observe(self) -> tuple[BackendWorker, ...]:
        return parse_pods(self._client.list(self._selection).items, self._pool)

    def launch(self, order: WorkerOrder) -> str:
        secret = render_secret(order, self._namespace)
        name = secret["metadata"]["name"]
        self._client.patch(SECRETS, name, secret, self._namespace, kind=PatchKind.APPLY, manager=AGENT, force=True)
        with suppress(AlreadyExists):  # an answer that was lost: its id is nobody else's
            self._client.create(PODS, render_pod(order, self._options, self._namespace), self._namespace)
        self._remove_surplus()
        return f"{self._namespace}/{order.id}"

    def cancel(self, backend_id: str, *, is_forced: bool = False) -> None:
        namespace, name = parse_backend_id(backend_id)
        with suppress(NotFound):
            self._client.delete(PODS, name, namespace, grace_s=0 if is_forced else None)

    def logs(self, backend_id: str) -> Iterator[bytes]:
        namespace, name = parse_backend_id(backend_id)
        with self._client.log(name, namespace, CONTAINER) as stream:
            yield from stream

    def render(self, order: WorkerOrder) -> str:
        return yaml.safe_dump(render_pod(order, self._options, self._namespace), sort_keys=False, width=120)

    def _remove_surplus(self) -> None:
        """A failure of this is not one of the launch, and the next launch does it again."""
        with suppress(SwellError):
            for name in surplus(self._client.list(self._selection).items, self._pool):
                self.cancel(f"{self._namespace}/{name}")
