"""The HTTP API: jobs, logs, events, nodes, and the workers' sync.

Public: `create_app`, `Services`, `Measured`. It translates between the wire and the controller's intents and the
store's reads; it decides nothing. FastAPI describes it at `/api/v1/openapi.json`. Foreign wire formats live in
`doors/`.
"""

from swell.api.app import create_app
from swell.api.probes import Measured
from swell.api.services import Services

__all__ = ["Measured", "Services", "create_app"]
