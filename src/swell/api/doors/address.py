"""What is in an address that needs no header?

`http://127.0.0.1:PORT/d/<token>/…`. A job's token is its attempt's own (controller/reporting.py). A user's is made
here: an HMAC over door, user and expiry. Nothing of it is stored, so it cannot be taken back before it expires.
"""

from __future__ import annotations

import hashlib
import hmac

PREFIX = "swd"
FIELDS = 4


def make_address_token(secret: str, *, door: str, user: str, expires_at: float) -> str:
    body = f"{PREFIX}.{door}.{user.encode().hex()}.{int(expires_at)}"
    return f"{body}.{_signature(secret, body)}"


def read_address_token(secret: str, token: str, now: float) -> tuple[str, str] | None:
    """The door and the user; None: forged, broken or expired."""
    body, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, body).encode()):
        return None
    parts = body.split(".")
    if len(parts) != FIELDS or parts[0] != PREFIX or now > int(parts[3]):
        return None
    return parts[1], bytes.fromhex(parts[2]).decode()


def _signature(secret: str, body: str) -> str:
    return hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
