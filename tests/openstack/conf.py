"""The configuration of every server, rendered for one place; pure but for `write_configuration`.

Ports and the place are fixed: the database remembers both (image files, the catalog), and a lock
lets only one control plane stand on a machine at a time.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

SECRET = "secret"
HOST = "127.0.0.1"
SERVERS = Path(__file__).parent / "servers"

MARIADB, RABBIT, EPMD, RABBIT_NODE = 18000, 18001, 18002, 18003
KEYSTONE, PLACEMENT, GLANCE, NEUTRON, NOVA, CINDER = 18010, 18011, 18012, 18013, 18014, 18016
NOVA_BEHIND = 18015
"""Where Nova really listens: the catalog names `NOVA`, where the proxy is."""

DATABASES = (
    "keystone", "placement", "glance", "neutron", "nova_api", "nova_cell0", "nova_cell1", "cinder",
)  # fmt: skip
AUTH_URL = f"http://{HOST}:{KEYSTONE}/v3"
TRANSPORT = f"rabbit://guest:guest@{HOST}:{RABBIT}/"

Sections = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Place:
    root: Path
    environment: Path

    def program(self, name: str) -> str:
        return str(self.environment / "bin" / name)

    def conf(self, server: str) -> Path:
        name = "glance-api.conf" if server == "glance" else f"{server}.conf"
        return self.root / "etc" / server / name

    def shipped(self, path: str) -> Path:
        """A file that the servers' packages bring along."""
        return self.environment / "etc" / path


def database_url(name: str) -> str:
    return f"mysql+pymysql://os:{SECRET}@{HOST}:{MARIADB}/{name}?charset=utf8"


def render(sections: Sections) -> str:
    blocks = (
        "\n".join((f"[{name}]", *(f"{key} = {value}" for key, value in options.items())))
        for name, options in sections.items()
    )
    return "\n\n".join(blocks) + "\n"


def write_configuration(place: Place) -> None:
    """All but the databases: a place that comes from the cache gets this anew."""
    for server, sections in configurations(place).items():
        path = place.conf(server)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(sections))
    for folder in ("lock", "state", "mq", "images/tasks", "images/staging"):
        (place.root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(place.shipped("nova/api-paste.ini"), place.conf("nova").parent)
    _write_rabbit(place.root / "mq")
    _write_drivers(place.root / "python")


def configurations(place: Place) -> dict[str, Sections]:
    return {
        "keystone": _keystone(place),
        "placement": _placement(),
        "glance": _glance(place),
        "neutron": _neutron(place),
        "nova": _nova(place),
        "cinder": _cinder(place),
    }


def _database(name: str) -> dict[str, object]:
    return {"connection": database_url(name), "max_pool_size": 20}


def _service_user() -> dict[str, object]:
    return {
        "auth_url": AUTH_URL,
        "auth_type": "password",
        "username": "svc",
        "password": SECRET,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "region_name": "RegionOne",
    }


def _client() -> dict[str, object]:
    return {**_service_user(), "valid_interfaces": "public"}


def _authtoken() -> dict[str, object]:
    return {**_service_user(), "www_authenticate_uri": AUTH_URL}


def _keystone(place: Place) -> Sections:
    return {
        "database": _database("keystone"),
        "fernet_tokens": {"key_repository": place.root / "keys"},
        "credential": {"key_repository": place.root / "credentials"},
        "identity": {"password_hash_rounds": 4},
        "token": {"expiration": 86400},
    }


def _placement() -> Sections:
    return {
        "placement_database": _database("placement"),
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": _authtoken(),
    }


def _glance(place: Place) -> Sections:
    images = place.root / "images"
    return {
        "DEFAULT": {
            "enabled_backends": "fs:file",
            "worker_self_reference_url": f"http://{HOST}:{GLANCE}",
            "enabled_import_methods": "[]",
        },
        "database": _database("glance"),
        "glance_store": {"default_backend": "fs"},
        "fs": {"filesystem_store_datadir": images},
        "os_glance_tasks_store": {"filesystem_store_datadir": images / "tasks"},
        "os_glance_staging_store": {"filesystem_store_datadir": images / "staging"},
        "paste_deploy": {
            "flavor": "keystone",
            "config_file": place.shipped("glance/glance-api-paste.ini"),
        },
        "keystone_authtoken": _authtoken(),
    }


def _neutron(place: Place) -> Sections:
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": "",
            "api_paste_config": place.shipped("neutron/api-paste.ini"),
            "state_path": place.root / "state",
            "auth_strategy": "keystone",
            "transport_url": TRANSPORT,
            "notify_nova_on_port_status_changes": "false",
            "notify_nova_on_port_data_changes": "false",
            "global_physnet_mtu": 1500,
            "dhcp_agent_notification": "false",
        },
        "oslo_concurrency": {"lock_path": place.root / "lock"},
        "database": _database("neutron"),
        "quotas": {
            "quota_port": -1,
            "quota_driver": "neutron.db.quota.driver_null.DbQuotaDriverNull",
            "track_quota_usage": "false",
        },
        "ml2": {
            "mechanism_drivers": "springtide",
            "type_drivers": "local",
            "tenant_network_types": "local",
            "extension_drivers": "",
        },
        "keystone_authtoken": _authtoken(),
    }


def _nova(place: Place) -> Sections:
    return {
        "DEFAULT": {
            "host": "compute-1",
            "compute_driver": "fake.FakeDriver",
            "state_path": place.root / "state",
            "transport_url": TRANSPORT,
            "max_concurrent_builds": 20,
            "report_interval": 5,
            "sync_power_state_interval": -1,
            "heal_instance_info_cache_interval": -1,
            "periodic_fuzzy_delay": 0,
            "vif_plugging_is_fatal": "false",
            "vif_plugging_timeout": 0,
            "reserved_host_memory_mb": 0,
        },
        "api": {"auth_strategy": "keystone"},
        "api_database": _database("nova_api"),
        "database": _database("nova_cell1"),
        "oslo_concurrency": {"lock_path": place.root / "lock"},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 1},
        "quota": {"instances": -1, "cores": -1, "ram": -1},
        "filter_scheduler": {"max_instances_per_host": 5000},
        "cinder": {**_service_user(), "os_region_name": "RegionOne"},
        "placement": _client(),
        "glance": _client(),
        "neutron": _client(),
        "service_user": {**_service_user(), "send_service_user_token": "true"},
        "keystone_authtoken": _authtoken(),
    }


def _cinder(place: Place) -> Sections:
    return {
        "DEFAULT": {
            "host": "volumes-1",
            "state_path": place.root / "state",
            "transport_url": TRANSPORT,
            "api_paste_config": place.shipped("cinder/api-paste.ini"),
            "auth_strategy": "keystone",
            "enabled_backends": "none",
            # How often it tells its scheduler, which may not have heard it yet, what it can do.
            "backend_stats_polling_interval": 3,
            "glance_api_servers": f"http://{HOST}:{GLANCE}",
            "resource_query_filters_file": place.shipped("cinder/resource_filters.json"),
        },
        "none": {
            "volume_driver": "springtide_volumes.NoVolume",
            "volume_backend_name": "none",
        },
        "database": _database("cinder"),
        "oslo_concurrency": {"lock_path": place.root / "lock"},
        "keystone_authtoken": {**_authtoken(), "service_token_roles_required": "true"},
    }


def _write_rabbit(folder: Path) -> None:
    """Its processes see another process namespace than /proc shows: it must not look there."""
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = {HOST}:{RABBIT}\n"
        "vm_memory_calculation_strategy = allocated\n"
        "disk_free_limit.absolute = 50MB\n"
    )
    (folder / "plugins").write_text("[].\n")


def _write_drivers(folder: Path) -> None:
    """Neutron finds its mechanisms only among the entry points of what is installed."""
    described = folder / "springtide_ports-1.dist-info"
    described.mkdir(parents=True, exist_ok=True)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: springtide_ports\nVersion: 1\n"
    )
    (described / "entry_points.txt").write_text(
        "[neutron.ml2.mechanism_drivers]\nspringtide = springtide_ports:AnyPort\n"
    )
    for driver in SERVERS.glob("springtide_*.py"):
        shutil.copy(driver, folder)
