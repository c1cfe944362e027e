"""What nodes mount, what is exported to whom, who answers for names: as files and facts."""

import errno
from pathlib import Path

import pytest

from springtide.configure.exports import (
    Export,
    Listening,
    clients_of,
    export_id,
    export_lines,
    exports_of,
    folded,
    mounting,
    parse_exports,
    parse_line,
    render_exports,
    render_ganesha,
)
from springtide.configure.mounts import bound_in, mounts_of
from springtide.configure.names import (
    address_for,
    decide_changes,
    has_server,
    names_of,
    parse_domains,
    parse_entry,
    render_dnsmasq,
    render_entry,
)
from springtide.ports import Site, Unavailable
from springtide.served.configurator import do_all
from springtide.served.names import check_version
from springtide.served.where import addresses_for
from springtide.spec import Cluster, parse

REMOTE = """
cluster: blue
provider: {kind: command, control_address: 10.0.0.1, list: [x], create: [x], delete: [x]}
groups:
  general: {nodes: "n[1-4]"}
shared:
  - {path: /home}
  - {path: /sw, source: /srv/software, options: [ro, soft]}
  - {path: /data, source: "nas:/export/data", type: nfs, options: [vers=3]}
"""
CONTAINERS = REMOTE.replace("kind: command, control_address: 10.0.0.1", "kind: containers").replace(
    ", list: [x], create: [x], delete: [x]", ""
)


def spec_of(text: str = REMOTE, more: str = "") -> Cluster:
    return parse(text + more, "cluster.yaml")


# Mounts


@pytest.mark.accepts("N7")
def test_nodes_elsewhere_mount_directories_of_this_machine_from_it_and_others_as_written() -> None:
    assert mounts_of(spec_of(), "10.0.0.1") == [
        {
            "source": "10.0.0.1:/home",
            "path": "/home",
            "type": "nfs4",
            "options": ["vers=4.2", "hard", "nodev", "nosuid"],
        },
        {
            "source": "10.0.0.1:/srv/software",
            "path": "/sw",
            "type": "nfs4",
            "options": ["vers=4.2", "nodev", "nosuid", "ro", "soft"],
        },
        {"source": "nas:/export/data", "path": "/data", "type": "nfs", "options": ["vers=3"]},
    ]


ELSEWHERE = """
  - {path: /win, source: //nas/share, type: cifs}
  - {path: /scratch, source: /dev/vdb, type: ext4}
  - {path: /slash, source: /srv//data/}
"""


def test_what_is_no_directory_of_this_machine_is_mounted_as_written_and_not_exported() -> None:
    spec = spec_of(REMOTE.rstrip() + ELSEWHERE)
    sources = {one["path"]: one["source"] for one in mounts_of(spec, "10.0.0.1")}
    assert (sources["/win"], sources["/scratch"]) == ("//nas/share", "/dev/vdb")
    assert sources["/slash"] == "10.0.0.1:/srv/data"
    assert [one.directory for one in exports_of(spec)] == ["/home", "/srv/data", "/srv/software"]


def test_nodes_are_told_the_port_of_a_server_that_has_another() -> None:
    spec = spec_of(more="nfs: {server: ganesha, port: 2050}\n")
    assert mounts_of(spec, "10.0.0.1")[0]["options"][-1] == "port=2050"


def test_containers_see_directories_of_this_machine_and_what_is_mounted_on_it() -> None:
    bound = bound_in(spec_of(CONTAINERS))
    assert [(str(one.source), str(one.path), one.read_only) for one in bound] == [
        ("/home", "/home", False),
        ("/srv/software", "/sw", True),
        ("/data", "/data", False),
    ]


# Exports


def test_only_directories_of_this_machine_are_exported_and_only_for_nodes_elsewhere() -> None:
    assert exports_of(spec_of()) == (Export("/home", True), Export("/srv/software", False))
    assert exports_of(spec_of(CONTAINERS)) == ()
    without = REMOTE.replace('"n[1-4]"', '"n[1-4]", without: [mounts]')
    assert exports_of(spec_of(without)) == ()


@pytest.mark.parametrize("without", ["join", "mounts"])
def test_what_ansible_has_nodes_mount_is_exported_where_they_look_for_it(without: str) -> None:
    text = REMOTE.replace('"n[1-4]"', f'"n[1-4]", without: [{without}]')
    spec = spec_of(text, "ansible: {}\n")
    assert exports_of(spec) == exports_of(spec_of())
    assert addresses_for(spec, mounting(spec), Site("10.9.9.9")) == ["10.0.0.1"]
    assert exports_of(spec_of(text, "ansible: {roles: [base]}\n")) == ()
    alone = text.replace(f"[{without}]", f"[{without}, ansible]")
    assert exports_of(spec_of(alone, "ansible: {}\n")) == ()
    assert exports_of(spec_of(CONTAINERS, "ansible: {}\n")) == ()


def test_nodes_are_served_by_their_addresses_unless_the_file_names_networks() -> None:
    nodes = {"n2": "10.0.0.6", "n1": "10.0.0.5"}
    assert clients_of(spec_of(), nodes) == ["10.0.0.5", "10.0.0.6"]
    named = spec_of(more="nfs: {clients: [10.1.0.0/16]}\n")
    assert clients_of(named, nodes) == ["10.1.0.0/16"]


def test_the_exports_of_the_kernel_are_a_line_for_each_directory_and_node() -> None:
    lines = export_lines(exports_of(spec_of()), ["10.0.0.6", "10.0.0.5"])
    text = render_exports("blue", lines)
    assert text == (
        "# Written by Springtide for the nodes of the cluster blue; changes are lost.\n"
        "/home 10.0.0.5(rw,sync,root_squash,no_subtree_check)\n"
        "/home 10.0.0.6(rw,sync,root_squash,no_subtree_check)\n"
        "/srv/software 10.0.0.5(ro,sync,root_squash,no_subtree_check)\n"
        "/srv/software 10.0.0.6(ro,sync,root_squash,no_subtree_check)\n"
    )
    assert parse_exports(text) == lines
    assert parse_line(lines[0]) == ("10.0.0.5:/home", "rw,sync,root_squash,no_subtree_check")


GANESHA = """\
# Written by Springtide; changes are lost.
NFS_CORE_PARAM {
    Protocols = 4;
    Bind_addr = 10.0.0.1;
    NFS_Port = 2049;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    # Newer ones want CAP_SYS_RESOURCE otherwise, which root has not in every container.
    Allow_Set_Io_Flusher_Fail = true;
}
NFSv4 {
    # Users have the same ids everywhere: no names, which would need a mapping.
    Only_Numeric_Owners = true;
    Lease_Lifetime = 20;
    Grace_Period = 25;
    RecoveryBackend = fs;
    RecoveryRoot = "/s/nfs/recovery";
}
NFS_KRB5 { Active_krb5 = false; }
EXPORT {
    Export_Id = 18830;
    Path = "/srv/software";
    Pseudo = "/srv/software";
    Protocols = 4;
    Transports = TCP;
    SecType = sys;
    Access_Type = None;
    Squash = Root_Squash;
    # Only root has these: any user of a node could otherwise claim to be another.
    PrivilegedPort = true;
    Anonymous_Uid = 65534;
    Anonymous_Gid = 65534;
    # Files change on this machine as well.
    Attr_Expiration_Time = 1;
    FSAL { Name = VFS; }
    CLIENT {
        Clients = 10.0.0.4/31, 10.0.0.9;
        Protocols = 4;
        Access_Type = RO;
        Squash = Root_Squash;
        PrivilegedPort = true;
    }
}
"""


def test_ganesha_serves_nodes_and_nobody_else() -> None:
    where = Listening("10.0.0.1", 2049, Path("/s/nfs/recovery"))
    exports = [Export("/srv/software", False)]
    assert render_ganesha(where, exports, ["10.0.0.9", "10.0.0.5", "10.0.0.4"]) == GANESHA
    assert "CLIENT" not in render_ganesha(where, exports, [])


def test_ten_thousand_nodes_in_a_row_are_few_networks() -> None:
    nodes = [f"10.1.{number // 256}.{number % 256}" for number in range(10_000)]
    assert len(folded(nodes)) == 5


def test_addresses_of_both_kinds_are_served() -> None:
    assert folded(["fd00::2", "10.0.0.4", "fd00::3", "10.0.0.9"]) == [
        "10.0.0.4",
        "10.0.0.9",
        "fd00::2/127",
    ]
    [line] = export_lines([Export("/home", True)], ["fd00::2"])
    assert parse_line(line)[0] == "[fd00::2]:/home"


def test_an_export_has_the_same_number_whatever_else_is_exported() -> None:
    alone = export_id("/home", ())
    assert export_id("/home", {1, 2, 3}) == alone
    assert export_id("/home", {alone}) == alone + 1
    assert 1 <= alone <= 65535


# Names

DNSMASQ = """\
# Written by Springtide; changes are lost.
user=dnsmasq
port=53
bind-interfaces
listen-address=10.0.0.1
listen-address=10.1.0.1
no-hosts
# Watched: a file that comes, changes or goes is noticed at once.
hostsdir=/s/naming/hosts
# Names without a domain are those of nodes, and nobody else knows the cluster's domain.
domain-needed
local=/blue/
no-negcache
cache-size=1000
no-resolv
server=10.0.0.53
"""


def test_the_name_server_listens_where_nodes_ask_and_forwards_to_whom_the_file_says() -> None:
    hosts, listen = Path("/s/naming/hosts"), ["10.0.0.1", "10.1.0.1"]
    assert render_dnsmasq("blue", hosts, listen, ["10.0.0.53"]) == DNSMASQ
    assert "resolv" not in render_dnsmasq("blue", hosts, listen, [])


def test_a_name_server_is_there_for_nodes_that_have_no_hosts_file_of_ours() -> None:
    assert has_server(spec_of())
    assert not has_server(spec_of(CONTAINERS))
    assert not has_server(spec_of(more="naming: {kind: hosts}\n"))


def test_a_change_costs_the_nodes_that_changed() -> None:
    known = {"n1": "10.0.0.5", "n2": "10.0.0.6", "n3": "10.0.0.7"}
    wanted = {"n1": "10.0.0.5", "n2": "10.0.0.9", "n4": "10.0.0.8"}
    assert decide_changes(known, wanted) == ({"n2": "10.0.0.9", "n4": "10.0.0.8"}, ["n3"])
    assert decide_changes(known, known) == ({}, [])


def test_a_name_server_that_forgets_nothing_is_refused() -> None:
    check_version("Dnsmasq version 2.90  Copyright (c) 2000-2024 Simon Kelley")
    check_version("Dnsmasq version UNKNOWN")
    with pytest.raises(Unavailable, match=r"dnsmasq 2\.86 does not forget nodes that are gone"):
        check_version("Dnsmasq version 2.86  Copyright (c) 2000-2021 Simon Kelley")


def test_the_entry_of_a_node_has_its_short_name_first() -> None:
    entry = render_entry("n1", "10.0.0.5", "blue")
    assert entry == "10.0.0.5 n1 n1.blue\n"
    assert parse_entry(entry) == "10.0.0.5"
    assert parse_entry("") == ""


@pytest.mark.accepts("N16")
def test_a_node_that_joins_is_told_whom_to_ask_or_all_names() -> None:
    nodes = {"n1": "10.0.0.5", "n2": "10.0.0.6"}
    site = ["site.example", "blue"]
    assert names_of(spec_of(), ["head"], "10.0.0.1", nodes, site) == {
        "nameserver": "10.0.0.1",
        "search": ["blue", "site.example"],
        "hosts": {"head": "10.0.0.1"},
    }
    hosts = spec_of(more="naming: {kind: hosts}\n")
    assert names_of(hosts, ["head"], "10.0.0.1", nodes, site) == {
        "nameserver": "",
        "search": [],
        "hosts": {"head": "10.0.0.1", **nodes},
    }


@pytest.mark.parametrize(
    ("search", "domains"),
    [("[lab.example, site.example]", ["blue", "lab.example", "site.example"]), ("[]", ["blue"])],
)
def test_the_file_says_where_else_nodes_look_for_short_names(
    search: str, domains: list[str]
) -> None:
    spec = spec_of(more=f"naming: {{search: {search}}}\n")
    assert names_of(spec, ["head"], "10.0.0.1", {}, ["here.example"])["search"] == domains


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        ("search a.example b.example\nnameserver 10.0.0.9\n", ["a.example", "b.example"]),
        ("domain c.example\n", ["c.example"]),
        ("search a.example\n# search d.example\nsearch e.example .\n", ["e.example"]),
        ("nameserver 10.0.0.9\n", []),
        ("search\n", []),
    ],
)
def test_a_machines_resolver_says_where_short_names_are(text: str, domains: list[str]) -> None:
    assert parse_domains(text) == domains


def test_nodes_of_a_provider_with_an_address_of_its_own_know_the_control_host_by_it() -> None:
    assert address_for(spec_of(), "general", Site("192.0.2.7")) == "10.0.0.1"
    nowhere = spec_of(REMOTE.replace("control_address: 10.0.0.1, ", ""))
    assert address_for(nowhere, "general", Site("192.0.2.7")) == "192.0.2.7"


# --- several servers -----------------------------------------------------------------------------


def test_a_server_whose_files_cannot_be_written_keeps_no_other_from_serving() -> None:
    served: list[str] = []

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/etc/exports.d/blue.exports")

    with pytest.raises(
        Unavailable, match=r"cannot write /etc/exports\.d/blue\.exports: No space left"
    ):
        do_all([full, lambda: served.append("names")])
    assert served == ["names"]
