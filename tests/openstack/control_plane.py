"""Starts the servers in the order in which they need each other, in a place that goes with them.

Called by `prepare`, which makes the state that every start begins from, and by `plugin`.
"""

import http.client
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.openstack import conf
from tests.openstack.conf import Place
from tests.openstack.processes import Processes

ROOT = Path("/var/tmp/tide-openstack")
KEPT = ("mariadb", "keys", "credentials", "images")
"""The folders that make up the state; the rest is written at each start."""

APIS = {
    "keystone": ("keystone.wsgi.api", conf.KEYSTONE),
    "placement": ("placement.wsgi.api", conf.PLACEMENT),
    "glance": ("glance.wsgi.api", conf.GLANCE),
    "neutron": ("neutron.wsgi.api", conf.NEUTRON),
    "nova": ("nova.wsgi.osapi_compute", conf.NOVA_BEHIND),
    "cinder": ("cinder.wsgi.api", conf.CINDER),
}
FIRST_APIS = ("keystone", "placement")
MORE_APIS = ("glance", "neutron", "nova")
WORKERS = ("nova-conductor", "nova-scheduler", "nova-compute")
VOLUME_WORKERS = ("cinder-scheduler", "cinder-volume")


class Servers:
    def __init__(self, place: Place, processes: Processes) -> None:
        self._place = place
        self.processes = processes

    def start(self, name: str) -> None:
        """Any of the servers; does not wait for it."""
        if name in APIS:
            self._start_api(name)
        else:
            server = name.partition("-")[0]
            argv = [self._place.program(name), "--config-file", str(self._place.conf(server))]
            self.processes.start(name, argv, self._environment(server))

    def await_api(self, name: str) -> None:
        port = APIS[name][1]
        self.processes.until(name, lambda: answers(port))

    def start_broker_and_database(self) -> None:
        self.processes.start("rabbit", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], self._rabbit())
        self.processes.start("mariadb", self._mariadb())
        self.processes.until("mariadb", lambda: listens(conf.MARIADB))

    def start_apis(self) -> None:
        """Nova and Neutron connect to the broker when they start, and give up after a while."""
        for name in FIRST_APIS:
            self.start(name)
        self.processes.until("rabbit", lambda: listens(conf.RABBIT))
        for name in MORE_APIS:
            self.start(name)
        for name in FIRST_APIS:
            self.await_api(name)

    def start_workers(self) -> None:
        """Conductor and scheduler end, or schedule nothing, without Keystone and Placement."""
        for name in WORKERS:
            self.start(name)
        for name in MORE_APIS:
            self.await_api(name)

    def start_volumes(self, is_up: Callable[[], bool]) -> None:
        for name in ("cinder", *VOLUME_WORKERS):
            self.start(name)
        self.await_api("cinder")
        self.processes.until("cinder-volume", is_up)

    def _start_api(self, name: str) -> None:
        """Cinder alone takes its configuration from the command line, not the environment."""
        module, port = APIS[name]
        serve = str(conf.SERVERS / "serve.py")
        options = ["--config-file", str(self._place.conf(name))] if name == "cinder" else []
        argv = [self._place.program("python"), serve, module, str(port), *options]
        self.processes.start(name, argv, self._environment(name))

    def _environment(self, server: str) -> dict[str, str]:
        """Of the files of its folder Nova takes the first for its pipeline: it finds its own."""
        variable = f"OS_{server.upper()}_CONFIG"
        path = self._place.conf(server)
        files = {} if server == "nova" else {f"{variable}_FILES": path.name}
        return {
            **files,
            f"{variable}_DIR": str(path.parent),
            "PYTHONPATH": str(self._place.root / "python"),
            "PYTHONWARNINGS": "ignore",
        }

    def _mariadb(self) -> list[str]:
        folder = self._place.root / "mariadb"
        return [
            "/usr/sbin/mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}",
            f"--socket={folder}/socket", f"--port={conf.MARIADB}", f"--bind-address={conf.HOST}",
            f"--pid-file={folder}/pid", "--max-connections=400", "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--sync-frm=0",
            "--innodb-log-file-size=32M", "--innodb-buffer-pool-size=128M",
        ]  # fmt: skip

    def _rabbit(self) -> dict[str, str]:
        folder = self._place.root / "mq"
        return {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": conf.HOST,
            "ERL_EPMD_PORT": str(conf.EPMD),
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": conf.HOST,
            "RABBITMQ_NODE_PORT": str(conf.RABBIT),
            "RABBITMQ_DIST_PORT": str(conf.RABBIT_NODE),
            "RABBITMQ_MNESIA_BASE": str(folder / "db"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }


@contextmanager
def servers(environment: Path, state: Path | None) -> Iterator[Servers]:
    """A place with nothing running in it yet; all of it is gone when the block ends."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(mode=0o700)
    processes = Processes(ROOT)
    try:
        if state is not None:
            copy_state(state, ROOT)
        place = Place(ROOT, environment)
        conf.write_configuration(place)
        yield Servers(place, processes)
    finally:
        processes.close()


def copy_state(source: Path, target: Path) -> None:
    folders = [str(source / folder) for folder in KEPT]
    subprocess.run(["cp", "-a", "--reflink=auto", *folders, str(target)], check=True)


def listens(port: int) -> bool:
    try:
        socket.create_connection((conf.HOST, port), timeout=5.0).close()
    except OSError:
        return False
    return True


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection(conf.HOST, port, timeout=10.0)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status in (200, 300, 401)
    except OSError:
        return False
    finally:
        connection.close()
