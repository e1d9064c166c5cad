"""How are the parts of a server put together? It serves until told to stop.

The composition root: the only module that knows the store, the engine, the controller and the API at once.
"""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from swell import __version__
from swell.api import Measured, Services, connections, create_app
from swell.api.audit import open_audit
from swell.api.box import Box
from swell.api.doors.manage import open_standing
from swell.api.serving import BoundedServer
from swell.config import ClusterSettings, Config, read_config, shared_limits
from swell.controller import Controller, Loop
from swell.controller.clock import SystemClock
from swell.controller.disk_limit import DiskLimit
from swell.controller.diskmeter import DiskMeter
from swell.controller.jobsecrets import open_job_secrets
from swell.controller.pools import WorkerPools
from swell.controller.reporting import Reporting
from swell.controller.retention import CheckpointFolders
from swell.errors import Conflict, Denied, SwellError, Unavailable
from swell.files.chunk_store import ChunkStore
from swell.machine.certificate import Certificate, ServedCertificate, certificate_for_start, way_for_others
from swell.machine.library import library_folder
from swell.machine.listening import listening_of
from swell.machine.state_folder import EXIT_ALREADY_SERVED, StateFolder, disk_problem
from swell.metrics import Metrics
from swell.model.launch import SOCKET_NAME
from swell.notifications import Notices, Programs, rules_for
from swell.planner.policies import POLICIES, check_of
from swell.server.backends import make_backend
from swell.server.forwarding import Reads
from swell.server.listeners import Address, address_of, open_listeners
from swell.server.standing_by import Standby
from swell.store import open_store

FOLDER_LOOK_S = 10.0
THREADS_SWITCH_S = (
    0.0005  # a tenth of Python's: a thread that computes for one user keeps the others waiting for so long
)

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
    engine: ClusterSettings | None  #: None: as config.json says
    tls_cert: str | None = None
    tls_key: str | None = None
    plain_http: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)  #: for config.json, once we have started
    stands_by: bool = False  #: while another server serves the folder, instead of ending

    def with_listening(self, config: Config) -> Config:
        """What was said of listening goes before all that the file says of it."""
        if self.listen is None:
            return config
        return replace(
            config,
            listen=self.listen,
            advertise=self.advertise,
            allowed_hosts=self.allowed_hosts,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            plain_http=self.plain_http,
        )

    def cluster(self, config: Config) -> ClusterSettings | None:
        """Of a cluster that the command line names, the settings that it has no words for are read all the same."""
        if self.engine is None or config.cluster is None:
            return self.engine or config.cluster
        jobs_namespace = self.engine.jobs_namespace or config.cluster.jobs_namespace
        return replace(self.engine, stand_ins=config.cluster.stand_ins, jobs_namespace=jobs_namespace)

    def config_of(self, state: StateFolder) -> Config:
        """On the disk of a box, and of a cluster's server, each user has a share; one's own disk is one's own."""
        file = self.config or state.config
        config = read_config(file, changed=self.settings)
        if state.socket is not None or self.cluster(config) is not None:
            config = read_config(file, shared_limits(state.root), self.settings)
        return self.with_listening(config)


def main() -> int:
    parser = argparse.ArgumentParser(prog="swell server")
    parser.add_argument("--state", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--socket", type=Path, help="socket for all users of this machine; needs root")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help="listen on this address, too")
    parser.add_argument("--advertise", metavar="URL", help="URL for jobs, instead of the --listen address")
    parser.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="another host name of the server"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate in PEM, instead of a self-signed one")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of the certificate")
    parser.add_argument("--plain-http", action="store_true", help="serve without TLS, for example behind a proxy")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="settings to store in config.json after a successful start"
    )
    parser.add_argument("--config", type=Path, help="settings file, instead of config.json in the state folder")
    parser.add_argument(
        "--engine", choices=["workers", "kubernetes"], default="workers", help="engine that runs the tasks"
    )
    parser.add_argument("--kubeconfig", help="kubeconfig of the cluster; default: KUBECONFIG, or the server's own pod")
    parser.add_argument("--context", help="context in the kubeconfig, instead of the current one")
    parser.add_argument("--namespace", help="namespace of the server's own Lease and pods")
    parser.add_argument(
        "--jobs-namespace", help="namespace for jobs that name none; not the one with the server's secrets"
    )
    parser.add_argument(
        "--reservation-image", help="image with a shell, for the pods that reserve shared GPUs; runs without root"
    )
    parser.add_argument(
        "--token-file", type=Path, help="file with the administrator's token, instead of a random token"
    )
    parser.add_argument("--pod", help="the server's own pod, which gets the label that the chart's Services select")
    parser.add_argument(
        "--stand-by",
        action="store_true",
        help="while another server serves the state folder, wait to take over, instead of ending",
    )
    options = parser.parse_args()
    flags = Flags(
        options.port,
        options.listen,
        options.advertise,
        tuple(options.allowed_host),
        options.config,
        options.token_file,
        _cluster(options),
        options.tls_cert,
        options.tls_key,
        options.plain_http,
        options.settings,
        options.stand_by,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.umask(0o077)
    sys.setswitchinterval(THREADS_SWITCH_S)
    try:
        serve(StateFolder(Path(options.state).absolute(), options.socket), flags)
    except AlreadyServed as error:
        print(f"swell: {error}", file=sys.stderr)
        log.info("another server is already running")  # the last line of a log is why no server runs, if none does
        return EXIT_ALREADY_SERVED
    except SwellError as error:
        print(f"swell: {error}", file=sys.stderr)
        if flags.settings:
            log.error("the server did not start, so these settings are not stored: %s", json.dumps(flags.settings))
        return 1
    return 0


def _cluster(options: argparse.Namespace) -> ClusterSettings | None:
    if options.engine != "kubernetes":
        return None
    return ClusterSettings(
        options.kubeconfig,
        options.context,
        options.namespace,
        options.reservation_image,
        jobs_namespace=options.jobs_namespace,
        pod=options.pod,
    )


def serve(state: StateFolder, flags: Flags) -> None:
    """Until SIGTERM, SIGINT or a request to stop."""
    _refuse_mixing(state)
    state.prepare()
    if _has_lock(state):
        _serve(state, flags, None)
        return
    if not flags.stands_by:
        raise _already_served(state)
    reads = Reads(state.server_socket) if state.socket is None else None  # on a box's the kernel says who asks
    with Standby(listening_of(flags.config_of(state)), reads) as standby:
        if standby.wait(lambda: _has_lock(state)):
            _serve(state, flags, standby)


def _serve(state: StateFolder, flags: Flags, standby: Standby | None) -> None:
    """The folder is ours. `standby` goes on answering until the server does; None: we did not wait."""
    config = flags.config_of(state)
    beyond = listening_of(config)
    if flags.token_file is not None:
        state.keep_secret(state.token, flags.token_file)
    listeners = open_listeners(state, flags.port, beyond, None if standby is None else standby.listener(beyond))
    address = address_of(listeners.loopback, beyond)
    with certificate_for_start(state, config, beyond) as certificate:
        served = None if certificate is None else ServedCertificate(certificate)
        parts = Parts(state, config, flags.cluster(config), address, certificate)
        if served is not None:
            parts.http.secure(listeners.secure, served.context)
        parts.open(lambda: _remember(state, flags.settings))
    for line in way_for_others(beyond, certificate):
        log.info(line)
    state.write_json(state.server_file, _about(state, address.local, parts.store.id))
    log.info("swell %s serves %s from %s at http://%s", __version__, state, state.root, address.local)
    parts.services.doorkeeper.reopen(parts.store.doors.opened())
    chores = [parts.forget_secrets, *([] if served is None else [served.look])]
    FolderWatch(state, parts.services.stop, chores).start()
    try:
        open_standing(parts.services)
        if standby is not None:
            standby.close()
        parts.http.run(sockets=listeners.plain)
    finally:
        parts.close()
        state.server_file.unlink(missing_ok=True)
        log.info("stopped")


def _remember(state: StateFolder, settings: Mapping[str, object]) -> None:
    if not settings:
        return
    try:
        state.write_json(state.config, {**state.read_json(state.config), **settings})
    except OSError as error:
        raise Unavailable(disk_problem(error, state.root)) from error


def _has_lock(state: StateFolder) -> bool:
    """The folder is ours then, until this process ends."""
    return state.lock("server") is not None


def _already_served(state: StateFolder) -> AlreadyServed:
    return AlreadyServed(
        f"a server for {state} is already running (process {state.lock_holder('server')}); "
        f"use it, stop it with `swell down --state {state.root}`, or choose another folder with --state"
    )


def _refuse_mixing(state: StateFolder) -> None:
    """What a private server would run as itself, a box server must run as somebody else, and the other way round."""
    if state.socket is None:
        if state.tokens.exists():
            raise Conflict(f"{state} belongs to this machine's box server; start that server: systemctl start swell")
        return
    if os.geteuid() != 0:
        raise Denied("a box server starts tasks as the users who submit them, which only root can do; run it as root")


class Parts:
    """All that a server is made of. The lambdas are for those who were made before whom they call."""

    def __init__(
        self,
        state: StateFolder,
        config: Config,
        cluster: ClusterSettings | None,
        address: Address,
        certificate: Certificate | None,
    ) -> None:
        self._state = state
        self._config = config
        self._address = address
        self._certificate = certificate  #: None: no TLS of ours
        self._clock = SystemClock()
        self.store = open_store(state.database, self._clock.now)
        self._backend = make_backend(
            state, cluster, self.store, lambda: self._controller.look(), address=address.machine
        )
        self._job_secrets = open_job_secrets(state, self.store.attempt_made_at)
        self.forget_secrets()
        self._metrics = Metrics()
        self._audit = open_audit(config.audit, state.audit_cursor)
        connections.refusals.tell = self._audit.refused
        self._metrics.go_on_from(self.store.counts())
        self.store.on_commit = self._metrics.committed
        self._disk = self._make_disk_meter()
        self._files = self._make_chunk_store()
        self._notices = self._make_notices(on_cluster=cluster is not None)
        self._controller = self._make_controller()
        self._loop = Loop(self._controller, self._clock)
        self.services = self._make_services()
        self._connect_bells()
        self.http = _Http(self.services)

    def _make_chunk_store(self) -> ChunkStore | None:
        """None: jobs have their files where they run."""
        if self._state.socket is not None or self._backend.workers is None:
            return None
        limits = self._config.limits_of(getpass.getuser())
        return ChunkStore(self._state.files, lambda: limits.disk_bytes)

    def _make_disk_meter(self) -> DiskMeter:
        return DiskMeter(
            self._state.checkpoints,
            self._state.tasks,
            self.store.owners,
            lambda user: self._config.limits_of(user).disk_bytes,
            lambda: self._controller.look(),
        )

    def _make_notices(self, *, on_cluster: bool) -> Notices:
        rules = rules_for(self._config.notices, on_box=self._state.socket is not None, on_cluster=on_cluster)
        return Notices(
            rules,
            Programs(self._state, self.store.id) if rules.runs_programs else None,
            self.store.job,
            lambda job, kind, detail, is_last: self._controller.told(job, kind, detail, is_last=is_last).result(),
        )

    def _make_controller(self) -> Controller:
        return Controller(
            self.store,
            self._backend.engine,
            self._clock,
            keep_s=self._config.keep_s,
            reporting=self._make_reporting(),
            notify=self._notices.tell,
            erase_checkpoints=CheckpointFolders(self._state.checkpoints).erase,
            watch=self._metrics.cycled,
            half_life_s=self._config.half_life_s,
            limits=self._config.limits_of,
            disk=DiskLimit(self._disk.use, self._disk.sizes),
            forgotten=self._disk.forget,
            wording=self._backend.wording,
            pools=WorkerPools(self._state.root / "pools.json"),
            plan=POLICIES[self._config.policy],
            check=check_of(self._config.policy),
        )

    def _make_reporting(self) -> Reporting:
        url = self._address.url_for_jobs(are_here=self._backend.cluster is None)
        own = self._certificate is not None and self._certificate.is_own and url.startswith("https:")
        fingerprint = self._certificate.fingerprint if own and self._certificate is not None else ""
        return Reporting(url, self._job_secrets.of, self._backend.checkpoints, fingerprint, self._socket_of_jobs())

    def _socket_of_jobs(self) -> str:
        """Empty: they are told an address only. A box server's is a port of root's, and pods see no file of ours."""
        is_told = self._backend.cluster is None and self._state.socket is None
        return str(self._state.sockets / SOCKET_NAME) if is_told else ""

    def _make_services(self) -> Services:
        state, config, backend, owner = self._state, self._config, self._backend, getpass.getuser()
        return Services(
            store=self.store,
            controller=self._controller,
            engine=backend.engine,
            members=None if self._address.beyond is None else backend.members(config, owner),
            workers=backend.workers,
            cluster=backend.cluster,
            is_ready=lambda: backend.is_ready,
            owner=owner,
            token=state.secret(state.token),
            worker_token=state.secret(state.worker_token),
            job_secrets=self._job_secrets,
            checkpoints=self._controller.checkpoint_folder,
            url=self._address.url,
            hosts=self._address.hosts,
            server_id=secrets.token_hex(8),
            stop=lambda: self.http.handle_exit(signal.SIGTERM, None),
            metrics=self._metrics,
            audit=self._audit,
            config=config,
            library=partial(library_folder, None if state.socket is None else state.library),
            files=self._files,
            disk=self._disk,
            box=None if state.socket is None else Box(config.admin_group, runtime_folder=state.runtime_folder),
        )

    def _connect_bells(self) -> None:
        """Whoever polls hears of what happens."""
        self.store.listen(self.services.committed.ring)
        if self.services.workers is not None:
            self.services.workers.on_desired = self.services.desired.ring
        self._controller.on_control = self.services.control.ring

    def forget_secrets(self) -> None:
        """Those with which no running job's token was made."""
        self._job_secrets.forget_unused(self.store.oldest_open_attempt)

    def open(self, keep_settings: Callable[[], None]) -> None:
        """Settings are kept once a cluster has answered, and before our own worker reads them."""

        def load() -> int:
            keep_settings()
            return self._controller.load()

        self._audit.start(self.store)
        self._backend.adopt(self._controller, self._config.limits_of, self._disk.use)
        self._backend.open(load)
        self._loop.start()
        if self._config.limits_disk:
            self._disk.start()
        if self._files is not None:
            self._files.start_sweeping(self.store.owners)

    def close(self) -> None:
        self.services.doorkeeper.close_all()
        if self.services.members is not None:
            self.services.members.close()
        self.services.pools.close()
        self._disk.close()
        if self._files is not None:
            self._files.close()
        self._loop.close()
        self._notices.close()
        self._backend.close()
        self._audit.close()
        self.store.close()


class _Http(BoundedServer):
    """Lets the long polls go when it ends."""

    def __init__(self, services: Services) -> None:
        super().__init__(Measured(create_app(services), services.metrics), keep_alive_s=75, ends_s=3)
        self._services = services

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Not uvicorn's own: that raises the signal again in the end, and our last steps would not be taken."""
        self._services.committed.close()
        self._services.desired.close()
        self._services.control.close()
        self.should_exit = True


def _about(state: StateFolder, address: str, store: str) -> dict[str, Any]:
    return {
        "url": f"http://{address}",
        "socket": str(state.server_socket),
        "pid": os.getpid(),
        "store": store,
        "version": __version__,
    }


class FolderWatch(threading.Thread):
    """Ends the server when its folder has been deleted: what it serves is gone, and nobody could find it.

    Until then it does what is to be done now and then.
    """

    def __init__(self, state: StateFolder, stop: Callable[[], None], chores: Sequence[Callable[[], None]]) -> None:
        super().__init__(name="folder-watch", daemon=True)
        self._state = state
        self._stop = stop
        self._chores = chores

    def run(self) -> None:
        while self._state.database.exists():
            time.sleep(FOLDER_LOOK_S)
            for chore in self._chores:
                try:
                    chore()
                except Exception:  # a full disk, most likely; the next time will do
                    log.warning("tidying up %s", self._state, exc_info=True)
        log.error("%s was deleted; ending", self._state)
        self._stop()
