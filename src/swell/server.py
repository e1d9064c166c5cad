"""`python -m swell.server --state DIR`: puts the parts together and serves until told to stop.

The composition root: the only module that knows the store, the engine, the controller and the API at once.
"""

from __future__ import annotations

import argparse
import gc
import getpass
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swell import __version__
from swell.api import Measured, Services, connections, create_app
from swell.api.box import Box
from swell.api.doors.manage import open_standing
from swell.api.serving import BoundedServer
from swell.audit import open_audit
from swell.certificate import Certificate, certificate_of
from swell.config import Cluster, Config, Limits, disk_share_mib, read_config
from swell.controller import Controller
from swell.controller.clock import SystemClock
from swell.controller.diskmeter import DiskMeter
from swell.controller.erase import CheckpointFolders
from swell.controller.jobsecrets import open_job_secrets
from swell.controller.reporting import Reporting
from swell.errors import Conflict, Denied, SwellError
from swell.listeners import Address, address_of, open_listeners
from swell.listening import listening_of
from swell.metrics import Metrics
from swell.notices import Notices, Programs, rules_for
from swell.state import EXIT_ALREADY_SERVED, StateFolder
from swell.store import open_store
from swell.works import LocalWorks, make_works

FOLDER_LOOK_S = 10.0
THREADS_SWITCH_S = (
    0.0005  # a tenth of Python's: a thread that computes for one user keeps the others waiting for so long
)
GARBAGE = (50_000, 20, 50)  # we make hardly any cycles, and to look for them among a cluster's pods takes long

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
    tls_cert: str | None = None
    tls_key: str | None = None
    plain_http: bool = False

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

    def cluster(self, config: Config) -> Cluster | None:
        """Of a cluster that the command line names, the settings that it has no words for are read all the same."""
        if self.engine is None or config.cluster is None:
            return self.engine or config.cluster
        jobs_namespace = self.engine.jobs_namespace or config.cluster.jobs_namespace
        return replace(self.engine, stand_ins=config.cluster.stand_ins, jobs_namespace=jobs_namespace)


def main() -> int:
    parser = argparse.ArgumentParser(prog="swell server")
    parser.add_argument("--state", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--socket", type=Path, help="serve everybody on this machine, as root, here")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help="beside loopback, with a token as everywhere")
    parser.add_argument("--advertise", metavar="URL", help="what jobs are told instead of that address")
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="a further name of ours")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate in PEM, instead of one of our own")
    parser.add_argument("--tls-key", metavar="FILE", help="its key")
    parser.add_argument("--plain-http", action="store_true", help="no TLS: something before us speaks it, or nobody")
    parser.add_argument("--config", type=Path, help="settings, instead of config.json in the state folder")
    parser.add_argument("--engine", choices=["workers", "kubernetes"], default="workers", help="who runs the tasks")
    parser.add_argument("--kubeconfig", help="of that cluster; without it KUBECONFIG, or the pod we are in")
    parser.add_argument("--context", help="of the kubeconfig, instead of its current one")
    parser.add_argument("--namespace", help="of the server's own Lease and pods")
    parser.add_argument("--jobs-namespace", help="for jobs that name none; never where the server's own secrets are")
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
        options.tls_cert,
        options.tls_key,
        options.plain_http,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.umask(0o077)
    gc.set_threshold(*GARBAGE)
    sys.setswitchinterval(THREADS_SWITCH_S)
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
    return Cluster(
        options.kubeconfig,
        options.context,
        options.namespace,
        options.reservation_image,
        jobs_namespace=options.jobs_namespace,
    )


def serve(state: StateFolder, flags: Flags) -> None:
    """Until SIGTERM, SIGINT or a request to stop."""
    _refuse_mixing(state)
    state.prepare()
    _take_over(state)
    config = flags.with_listening(read_config(flags.config or state.config, _limits_unless_said(state)))
    beyond = listening_of(config)
    certificate = certificate_of(state, config, beyond)
    if flags.token_file is not None:
        state.keep_secret(state.token, flags.token_file)
    listeners = open_listeners(state, flags.port, beyond)
    address = address_of(listeners.loopback, beyond)
    parts = Parts(state, config, flags.cluster(config), address, certificate)
    parts.open()
    if certificate is not None:
        parts.http.secure(listeners.secure, certificate.context())
        log.info("TLS at %s, certificate SHA-256 %s", address.url, certificate.fingerprint)
    state.write_json(state.server_file, _about(address.local, parts.store.id))
    log.info("swell %s serves %s from %s at http://%s", __version__, state, state.root, address.local)
    parts.services.doorkeeper.reopen(parts.store.doors.opened())
    FolderWatch(state, parts.services.stop, parts.forget_secrets).start()
    try:
        open_standing(parts.services)
        parts.http.run(sockets=listeners.plain)
    finally:
        parts.close()
        state.server_file.unlink(missing_ok=True)
        log.info("stopped")


def _limits_unless_said(state: StateFolder) -> Limits:
    """The disk of a box is everybody's; one's own is one's own."""
    return Limits() if state.socket is None else Limits(disk_mib=disk_share_mib(state.root))


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


class Parts:
    """All that a server is made of. The lambdas are for those who were made before whom they call."""

    def __init__(
        self,
        state: StateFolder,
        config: Config,
        cluster: Cluster | None,
        address: Address,
        certificate: Certificate | None,
    ) -> None:
        self._state = state
        self._config = config
        self._address = address
        self._certificate = certificate  #: None: no TLS of ours
        self._clock = SystemClock()
        self.store = open_store(state.database, self._clock.now)
        self._works = make_works(state, cluster, self.store, lambda: self._controller.look())
        self._job_secrets = open_job_secrets(state, self.store.attempt_made_at)
        self.forget_secrets()
        self._metrics = Metrics()
        self._audit = open_audit(config.audit, state.audit_cursor)
        connections.refusals.tell = self._audit.refused
        self._metrics.go_on_from(self.store.counts())
        self.store.on_commit = self._metrics.committed
        self._disk = self._make_disk_meter()
        self._notices = self._make_notices(on_cluster=cluster is not None)
        self._controller = self._make_controller()
        self.services = self._make_services()
        self._connect_bells()
        self.http = _Http(self.services)

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
            self._works.engine,
            self._clock,
            keep_s=self._config.keep_s,
            reporting=self._make_reporting(),
            notify=self._notices.tell,
            erase_checkpoints=CheckpointFolders(self._state.checkpoints).erase,
            watch=self._metrics.cycled,
            half_life_s=self._config.half_life_s,
            limits=self._config.limits_of,
            disk_use=self._disk.use,
            forgotten=self._disk.forget,
            on_cluster=not isinstance(self._works, LocalWorks),
        )

    def _make_reporting(self) -> Reporting:
        url = self._address.url_for_jobs(are_here=isinstance(self._works, LocalWorks))
        own = self._certificate is not None and self._certificate.is_own and url.startswith("https:")
        fingerprint = self._certificate.fingerprint if own and self._certificate is not None else ""
        return Reporting(url, self._job_secrets.of, self._works.checkpoints, fingerprint)

    def _make_services(self) -> Services:
        state, config, works, owner = self._state, self._config, self._works, getpass.getuser()
        return Services(
            store=self.store,
            controller=self._controller,
            engine=works.engine,
            members=None if self._address.beyond is None else works.members(config, owner),
            try_out=works.try_out,
            delete_object=works.delete_object,
            priority_classes=works.priority_classes,
            gpu_quota=works.gpu_quota,
            is_ready=lambda: works.is_ready,
            intake=works.intake,
            owner=owner,
            token=state.secret(state.token),
            worker_token=state.secret(state.worker_token),
            job_secrets=self._job_secrets,
            checkpoints=self._controller.checkpoint_folder,
            sees_checkpoints=isinstance(works, LocalWorks),
            url=self._address.url,
            hosts=self._address.hosts,
            server_id=secrets.token_hex(8),
            stop=lambda: self.http.handle_exit(signal.SIGTERM, None),
            metrics=self._metrics,
            audit=self._audit,
            config=config,
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

    def open(self) -> None:
        self._audit.start(self.store)
        self._works.adopt(self._controller, lambda owner: self._config.limits_of(owner).priority)
        self._works.open(self._controller.load)
        self._controller.start()
        if self._config.limits_disk:
            self._disk.start()

    def close(self) -> None:
        self.services.doorkeeper.close_all()
        if self.services.members is not None:
            self.services.members.close()
        self.services.pools.close()
        self._disk.close()
        self._controller.close()
        self._notices.close()
        self._works.close()
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


def _about(address: str, store: str) -> dict[str, Any]:
    return {"url": f"http://{address}", "pid": os.getpid(), "store": store, "version": __version__}


class FolderWatch(threading.Thread):
    """Ends the server when its folder has been deleted: what it serves is gone, and nobody could find it.

    Until then it keeps the folder tidy.
    """

    def __init__(self, state: StateFolder, stop: Callable[[], None], tidy: Callable[[], None]) -> None:
        super().__init__(name="folder-watch", daemon=True)
        self._state = state
        self._stop = stop
        self._tidy = tidy

    def run(self) -> None:
        while self._state.database.exists():
            time.sleep(FOLDER_LOOK_S)
            try:
                self._tidy()
            except Exception:  # a full disk, most likely; the next time will do
                log.warning("tidying up %s", self._state, exc_info=True)
        log.error("%s was deleted; ending", self._state)
        self._stop()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # all is closed; to give back the memory of a large cluster piece by piece takes half a minute
