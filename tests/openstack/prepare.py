"""Makes the state that every control plane starts from; `plugin` has it kept between runs.

Schemas, users, catalog, images, flavors and a network, but no host yet: Nova's fake driver has
another identity in each process, and would refuse to start under its old name.
"""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.openstack import conf, contents
from tests.openstack.conf import Place, database_url
from tests.openstack.control_plane import MORE_APIS, ROOT, Servers, copy_state, servers

SYNC_S = 240.0


def prepare(environment: Path, state: Path) -> None:
    place = Place(ROOT, environment)
    with servers(environment, None) as made:
        _make_databases(made, place)
        made.start_apis()
        for name in MORE_APIS:
            made.await_api(name)
        contents.fill()
        made.processes.stop("mariadb", signal.SIGTERM)
        state.mkdir()
        copy_state(ROOT, state)


def _make_databases(made: Servers, place: Place) -> None:
    folder = place.root / "mariadb"
    made.processes.run_all(
        {
            "mariadb-install": [
                "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
            ],
            "keystone-keys": _keystone(place, "fernet_setup", *_owned_by_root()),
            "keystone-credentials": _keystone(place, "credential_setup", *_owned_by_root()),
        },
        SYNC_S,
    )  # fmt: skip
    made.start_broker_and_database()
    socket = str(folder / "socket")
    client = ["mariadb", "--no-defaults", "--user=root", "--socket", socket]
    subprocess.run(client, input=_databases(), text=True, check=True)
    for step in _schemas(place):
        made.processes.run_all(step, SYNC_S)


def _databases() -> str:
    user = f"os@'{conf.HOST}'"
    created = [f"create database {name} character set utf8mb3;" for name in conf.DATABASES]
    granted = f"create user {user} identified by '{conf.SECRET}'; grant all on *.* to {user};"
    return "\n".join((*created, granted))


def _schemas(place: Place) -> Sequence[dict[str, list[str]]]:
    """What each step runs side by side; Nova's cells need its first schema, and so on."""
    neutron = [place.program("neutron-db-manage"), "--config-file", str(place.conf("neutron"))]
    cell0 = ("cell_v2", "map_cell0", "--database_connection", database_url("nova_cell0"))
    return (
        {
            "sync-keystone": _keystone(place, "db_sync"),
            "sync-placement": _manage(place, "placement", "db", "sync"),
            "sync-glance": _manage(place, "glance", "db_sync"),
            "sync-neutron": [*neutron, "upgrade", "heads"],
            "sync-nova-api": _manage(place, "nova", "api_db", "sync"),
            "sync-cinder": _manage(place, "cinder", "db", "sync"),
        },
        {
            "bootstrap": _keystone(place, "bootstrap", *_bootstrap()),
            "map-cell0": _manage(place, "nova", *cell0),
            "create-cell1": _manage(place, "nova", "cell_v2", "create_cell", "--name", "cell1"),
        },
        {"sync-nova": _manage(place, "nova", "db", "sync")},
    )


def _manage(place: Place, server: str, *words: str) -> list[str]:
    program = place.program(f"{server}-manage")
    return [program, "--config-file", str(place.conf(server)), *words]


def _keystone(place: Place, *words: str) -> list[str]:
    return _manage(place, "keystone", *words)


def _owned_by_root() -> tuple[str, ...]:
    return ("--keystone-user", "root", "--keystone-group", "root")


def _bootstrap() -> tuple[str, ...]:
    urls = (f"--bootstrap-{kind}-url" for kind in ("admin", "internal", "public"))
    addresses = (word for option in urls for word in (option, conf.AUTH_URL))
    named = ("--bootstrap-password", conf.SECRET, "--bootstrap-region-id", "RegionOne")
    return (*named, *addresses)
