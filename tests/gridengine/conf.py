"""What the Grid Engine of tests is told: as files of qconf, pure."""

import os
from collections.abc import Mapping
from pathlib import Path

CELL = "cell"
QUEUE = "cloud.q"
GROUP = "@cloud"
ENVIRONMENTS = {"mpi": "$fill_up", "smp": "$pe_slots", "by1": "1", "by2": "2", "by4": "4"}
"""Parallel environments, and how they place slots."""
FEATURE = "big"
"""A resource that hosts have or not."""
LICENCE = "licence"
"""A resource that the cell has, and no host."""
ON_PREMISES = "all.q"
PREMISES = "premises"
"""The host of the other queue."""
CLUSTER = f"sgcloud-{os.getpid()}"
"""There may be several at a time."""
PLACEHOLDER = f"springtide-{CLUSTER}-placeholder"
NOWHERE = {PLACEHOLDER: "192.0.2.1", PREMISES: "192.0.2.2"}
"""Grid Engine knows no host whose name leads nowhere; these addresses are nobody's."""

BOOTSTRAP = """\
admin_user sgeadmin
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {root}/{cell}/common;{root}/qmaster
binary_path /usr/sbin
qmaster_spool_dir {root}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
REPORT_TIME = "00:00:12"
"""A job that is deleted in the moment in which it starts may miss that. Its node is told again at
each report, but does nothing if that is within ten seconds of the last time."""
GLOBAL = {
    "load_report_time": REPORT_TIME,
    "max_unheard": "00:00:45",  # a busy machine may stand still for a while
    "reschedule_unknown": "00:00:00",
    "min_uid": "1",
    "min_gid": "1",
    "shell_start_mode": "unix_behavior",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
    "load_adjustment_decay_time": "0:0:0",
}
HOST = """\
hostname {name}
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""
PARALLEL = """\
pe_name {name}
slots 9999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {rule}
control_slaves TRUE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


COMPLEX = f"""\
{FEATURE} {FEATURE} BOOL == YES NO 0 0
{LICENCE} {LICENCE} INT <= YES YES 0 0
"""


def render_bootstrap(root: Path) -> str:
    return BOOTSTRAP.format(root=root, cell=CELL)


def render_settings(root: Path, ports: tuple[int, int]) -> str:
    """What users of a site source, and where the ports are to be read."""
    variables = environment(root, ports)
    return "".join(f"{name}={value}; export {name}\n" for name, value in variables.items())


def environment(root: Path, ports: tuple[int, int]) -> dict[str, str]:
    return {
        "SGE_ROOT": str(root),
        "SGE_CELL": CELL,
        "SGE_QMASTER_PORT": str(ports[0]),
        "SGE_EXECD_PORT": str(ports[1]),
    }


def changed(text: str, changes: Mapping[str, str]) -> str:
    """A configuration with other values; each of them must be there."""
    lines = text.replace("\\\n", " ").splitlines()
    known = {line.split()[0] for line in lines if line.split()}
    assert changes.keys() <= known, changes.keys() - known
    return "".join(f"{_changed(line, changes)}\n" for line in lines)


def _changed(line: str, changes: Mapping[str, str]) -> str:
    word = line.partition(" ")[0]
    return f"{word} {changes[word]}" if word in changes else line


def queue_changes(name: str, hosts: str) -> dict[str, str]:
    """Of the queue that `qconf -sq` shows as a template."""
    return {
        "qname": name,
        "hostlist": hosts,
        "load_thresholds": "NONE",
        "pe_list": " ".join(ENVIRONMENTS),
        "rerun": "TRUE",
        "slots": "1",
        "shell": "/bin/sh",
        "shell_start_mode": "unix_behavior",
    }
