"""TLS in front of a plain server, as an Ingress has it: whoever connects speaks TLS, and bytes are passed on."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

from engines.kubernetes.certificates import Pair

PIECE_BYTES = 65536


class Front:
    """On 127.0.0.1, at a port of its own; `behind` may come later, and nobody there hangs up."""

    def __init__(self, pair: Pair) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"https://127.0.0.1:{self.port}"
        self.behind: tuple[str, int] | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(made,), daemon=True).start()

    def _pass_on(self, made: socket.socket) -> None:
        with contextlib.suppress(OSError), made:
            caller = self._context.wrap_socket(made, server_side=True)
            if self.behind is None:
                return
            with caller, socket.create_connection(self.behind) as server:
                threading.Thread(target=_pump, args=(server, caller), daemon=True).start()
                _pump(caller, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Until one of them ends; then both do."""
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE_BYTES):
            target.sendall(piece)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
