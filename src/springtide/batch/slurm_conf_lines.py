"""slurm.conf as text: settings are merged and written, and a change of it is judged. Pure."""

from collections.abc import Iterable, Mapping

Settings = dict[str, str]

_REREAD = frozenset(
    {
        "partitionname",
        "poweraction",
        "resumerate",
        "resumetimeout",
        "schedulerparameters",
        "suspendexcnodes",
        "suspendrate",
        "suspendtime",
        "suspendtimeout",
    }
)
"""What a running slurmctld takes from `scontrol reconfigure`; for the rest it must restart.

An old one dies of it when nodes came or went, and forgets its last seconds. A restart takes 0.1 s
and loses no job, but for those that ask for a node by name which is no more.
"""


def merge(ours: Settings, theirs: Mapping[str, str], lists: frozenset[str]) -> Settings:
    """Our settings with theirs, whose keys are lower case: lists grow, other values change."""
    merged = dict(ours)
    for key, value in ours.items():
        name = key.lower()
        if name in theirs:
            merged[key] = _extended(value, theirs[name]) if name in lists else theirs[name]
    return merged


def add(lists: Mapping[str, str], parameters: Mapping[str, str]) -> Settings:
    """Parameters with those of lists that stand elsewhere before their own."""
    return {
        key: _extended(lists[key.lower()], value) if key.lower() in lists else value
        for key, value in parameters.items()
    }


def _extended(ours: str, theirs: str) -> str:
    options = [*ours.split(","), *theirs.strip('"').split(",")]
    by_name = {option.partition("=")[0].lower(): option for option in options if option}
    return ",".join(by_name.values())


def render_document(sections: Iterable[str]) -> str:
    head = "# Written by Springtide from the cluster file: change that, not this."
    return "\n\n".join([head, *filter(None, sections)]) + "\n"


def render_section(title: str, settings: Settings) -> str:
    if not settings:
        return ""
    return "\n".join([f"# {title}", *(f"{key}={value}" for key, value in settings.items())])


def render_line(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def needs_restart(old: str, new: str) -> bool:
    """Whether a running slurmctld must be restarted to take the change, or can reread it."""
    changed = set(old.splitlines()) ^ set(new.splitlines())
    keys = {line.partition("=")[0].lower() for line in changed if line and line[0] != "#"}
    return not keys <= _REREAD
