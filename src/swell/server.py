"""`python -m swell.server --state DIR`: puts the parts together and serves until told to stop.

The composition root: the only module that knows the store, the engine, the controller and the API at once.
"""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn

from swell import __version__
from swell.api import Measured, Services, create_app
from swell.api.box import Box
from swell.api.connections import ACCEPTED_AT_ONCE, WAITING_MAX, Connection
from swell.api.doors.manage import open_standing
from swell.config import Cluster, Config, read_config
from swell.controller import Controller
from swell.controller.clock import SystemClock
from swell.controller.erase import CheckpointFolders
from swell.controller.reporting import Reporting
from swell.errors import Conflict, Denied, SwellError
from swell.listening import Listening, listen, read_listening
from swell.metrics import Metrics
from swell.model.container import SOCKET_NAME
from swell.notify import Notifiers
from swell.sockets import listen_on
from swell.state import EXIT_ALREADY_SERVED, StateFolder
from swell.store import open_store
from swell.works import LocalWorks, make_works

FOLDER_LOOK_S = 10.0
LOOPBACK = "127.0.0.1"
#: Where only root can listen (and IANA has assigned nothing): while a box server is down, no user may take its port and
#: be told what jobs report, with their tokens.
BOX_PORTS = range(1011, 1021)

log = logging.getLogger(__name__)


class AlreadyServed(Conflict):
    """Somebody else holds the folder's lock."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What was said on the command line; it goes before what config.json says."""

    port: int  #: on loopback; 0: the last one
    listen: str | None
    advertise: str | None
    allowed_hosts: tuple[str, ...]
    config: Path | None  #: None: the one in the state folder
    token_file: Path | None  #: None: a token of our own making
    engine: Cluster | None  #: None: as config.json says

    def listening(self, config: Config) -> Listening | None:
        if self.listen is None:
            return read_listening(config.listen, config.advertise, config.allowed_hosts)
        return read_listening(self.listen, self.advertise, self.allowed_hosts)

    def cluster(self, config: Config) -> Cluster | None:
        """Of a cluster that the command line names, the settings that it has no words for are read all the same."""
        if self.engine is None or config.cluster is None:
            return self.engine or config.cluster
        return replace(self.engine, stand_ins=config.cluster.stand_ins)


def main() -> int:
    parser = argparse.ArgumentParser(prog="swell server")
    parser.add_argument("--state", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--socket", type=Path, help="serve everybody on this machine, as root, here")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help="beside loopback, with a token as everywhere")
    parser.add_argument("--advertise", metavar="URL", help="what jobs are told instead of that address")
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="a further name of ours")
    parser.add_argument("--config", type=Path, help="settings, instead of config.json in the state folder")
    parser.add_argument("--engine", choices=["workers", "kubernetes"], default="workers", help="who runs the tasks")
    parser.add_argument("--kubeconfig", help="of that cluster; without it KUBECONFIG, or the pod we are in")
    parser.add_argument("--context", help="of the kubeconfig, instead of its current one")
    parser.add_argument("--namespace", help="for objects that name none")
    parser.add_argument("--reservation-image", help="with a shell, for the pods that keep shared GPUs; as no root")
    parser.add_argument("--token-file", type=Path, help="holds the administrator's token, instead of a random one")
    options = parser.parse_args()
    flags = Flags(
        options.port,
        options.listen,
        options.advertise,
        tuple(options.allowed_host),
        options.config,
        options.token_file,
        _cluster(options),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.umask(0o077)
    try:
        serve(StateFolder(Path(options.state).absolute(), options.socket), flags)
    except AlreadyServed as error:
        print(f"swell: {error}", file=sys.stderr)
        return EXIT_ALREADY_SERVED
    except SwellError as error:
        print(f"swell: {error}", file=sys.stderr)
        return 1
    return 0


def _cluster(options: argparse.Namespace) -> Cluster | None:
    if options.engine != "kubernetes":
        return None
    return Cluster(options.kubeconfig, options.context, options.namespace, options.reservation_image)


def serve(state: StateFolder, flags: Flags) -> None:
    """Until SIGTERM, SIGINT or a request to stop."""
    _refuse_mixing(state)
    state.prepare()
    _take_over(state)
    config = read_config(flags.config or state.config)
    beyond = flags.listening(config)
    if flags.token_file is not None:
        state.keep_secret(state.token, flags.token_file)
    listeners = _listeners(state, flags.port, beyond)
    address = f"{LOOPBACK}:{listeners[0].getsockname()[1]}"
    url = f"http://{address}" if beyond is None else beyond.url
    clock = SystemClock()
    store = open_store(state.database, clock.now)
    works = make_works(state, flags.cluster(config), store, lambda: controller.look())
    job_secret = state.secret(state.job_secret)
    metrics = Metrics()
    metrics.go_on_from(store.counts())
    store.on_commit = metrics.committed
    notifier = Notifiers(lambda job: controller.told(job))
    controller = Controller(
        store,
        works.engine,
        clock,
        keep_s=config.keep_s,
        reporting=Reporting(url, job_secret, works.checkpoints),
        notify=notifier.tell,
        erase_checkpoints=CheckpointFolders(state.checkpoints).erase,
        watch=metrics.cycled,
        half_life_s=config.half_life_s,
        limits=config.limits_of,
    )
    services = Services(
        store=store,
        controller=controller,
        engine=works.engine,
        members=None if beyond is None else works.members(config, getpass.getuser()),
        try_out=works.try_out,
        priority_classes=works.priority_classes,
        is_ready=lambda: works.is_ready,
        owner=getpass.getuser(),
        token=state.secret(state.token),
        worker_token=state.secret(state.worker_token),
        job_secret=job_secret,
        checkpoints=controller.checkpoint_folder,
        sees_checkpoints=isinstance(works, LocalWorks),
        url=url,
        hosts=frozenset({address, address.replace(LOOPBACK, "localhost")}) | (beyond.hosts if beyond else frozenset()),
        server_id=secrets.token_hex(8),
        stop=lambda: http.handle_exit(signal.SIGTERM, None),
        metrics=metrics,
        config=config,
        box=None if state.socket is None else Box(config.admin_group, runtime_folder=state.runtime_folder),
    )
    store.listen(services.committed.ring)
    if services.workers is not None:
        services.workers.on_desired = services.desired.ring
    controller.on_control = services.control.ring
    http = _Http(services)
    works.adopt(controller)
    works.open(controller.load)
    controller.start()
    state.write_json(state.server_file, _about(address, store.id))
    log.info("swell %s serves %s from %s at http://%s", __version__, state, state.root, address)
    services.doorkeeper.reopen(store.doors.opened())
    FolderWatch(state, services.stop).start()
    try:
        open_standing(services)
        http.run(sockets=listeners)
    finally:
        services.doorkeeper.close_all()
        if services.members is not None:
            services.members.close()
        controller.close()
        works.close()
        notifier.close()
        store.close()
        state.server_file.unlink(missing_ok=True)
        log.info("stopped")


def _take_over(state: StateFolder) -> None:
    """The folder is ours until this process ends."""
    if state.lock("server") is None:
        raise AlreadyServed(
            f"a server for {state} runs already (process {state.lock_holder('server')}); "
            "use it, stop it with `swell down`, or choose another folder with --state"
        )


def _refuse_mixing(state: StateFolder) -> None:
    """What a private server would run as itself, a box server must run as somebody else, and the other way round."""
    if state.socket is None:
        if state.tokens.exists():
            raise Conflict(f"{state} belongs to this machine's box server; start that one: systemctl start swell")
        return
    if os.geteuid() != 0:
        raise Denied("a box server starts tasks as the users who submit them, which only root may; run it as root")


class _Http(uvicorn.Server):
    """uvicorn, and the long polls let go when it ends."""

    def __init__(self, services: Services) -> None:
        super().__init__(
            uvicorn.Config(
                Measured(create_app(services), services.metrics),
                http=Connection,
                ws="none",
                proxy_headers=False,  # nobody may say for us from where they come
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=3,
                timeout_keep_alive=75,
                backlog=ACCEPTED_AT_ONCE,
            )
        )
        self._services = services

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio has one number for how many to accept at once and how many the kernel keeps; we want two."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(WAITING_MAX)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Not uvicorn's own: that raises the signal again in the end, and our last steps would not be taken."""
        self._services.committed.close()
        self._services.desired.close()
        self._services.control.close()
        self.should_exit = True


def _about(address: str, store: str) -> dict[str, Any]:
    return {"url": f"http://{address}", "pid": os.getpid(), "store": store, "version": __version__}


def _listeners(state: StateFolder, port: int, beyond: Listening | None) -> list[socket.socket]:
    """Loopback first; then the sockets for containers and, on a box, for everybody; then whatever was asked for."""
    for_everybody = [] if state.socket is None else [listen_on(state.socket)]
    for_others = [] if beyond is None else [beyond.open()]
    return [_listen(state, port), _listen_for_containers(state), *for_everybody, *for_others]


def _listen(state: StateFolder, port: int) -> socket.socket:
    """On loopback; the same port as last time when it is free, because running jobs know it."""
    path = state.root / "port"
    text = path.read_text() if path.exists() else ""
    last = int(text) if text.isdigit() else 0  # a power cut may leave it empty
    safe = () if state.socket is None else BOX_PORTS
    for candidate in [port] if port else [last, *safe, 0]:
        try:
            listener = listen(LOOPBACK, candidate, todo="choose another with --port")
        except Conflict:
            if candidate == port and port:
                raise
            continue
        path.write_text(str(listener.getsockname()[1]))
        return listener
    raise Conflict("no port is free on loopback; end something that listens there")


def _listen_for_containers(state: StateFolder) -> socket.socket:
    """Jobs with a network of their own report here; the guard lets nothing else pass.

    Containers mount its folder: mounted by itself, it would be the old one after a restart of ours.
    """
    (state.sockets / SOCKET_NAME).unlink(missing_ok=True)
    folder = os.open(state.sockets, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(
            f"/proc/self/fd/{folder}/{SOCKET_NAME}"
        )  # however long the folder's path is: 107 bytes are the limit
    finally:
        os.close(folder)
    # The containers of a box server's users are theirs; the guard asks for a job's token all the same.
    (state.sockets / SOCKET_NAME).chmod(0o600 if state.socket is None else 0o666)
    listener.listen(1024)
    return listener


class FolderWatch(threading.Thread):
    """Ends the server when its folder has been deleted: what it serves is gone, and nobody could find it."""

    def __init__(self, state: StateFolder, stop: Callable[[], None]) -> None:
        super().__init__(name="folder-watch", daemon=True)
        self._state = state
        self._stop = stop

    def run(self) -> None:
        while self._state.database.exists():
            time.sleep(FOLDER_LOOK_S)
        log.error("%s was deleted; ending", self._state)
        self._stop()


if __name__ == "__main__":
    sys.exit(main())
