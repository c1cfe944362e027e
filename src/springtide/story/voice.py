"""How what is told speaks of the batch system that is there: stories are written for Slurm's. Pure.

Whoever tells people something has it said here last. Slurm that asks for nodes itself is spoken of
as it is written. Of a polled batch system it is Springtide that starts nodes and lets them go, and
one that is not Slurm has names and commands of its own. Only phrases of ours are changed, so that
what people wrote stays theirs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache

from springtide.batch.polled_look import RESTART_S
from springtide.spec import Cluster
from springtide.story.telling import Story, lasting


@dataclass(frozen=True, slots=True)
class Terms:
    """What things are called."""

    system: str
    daemon: str
    """That of nodes."""
    server: str
    show_job: str
    show_node: str
    show_queues: str
    show_closed: str
    """Nodes that are out of service."""
    list_jobs: str
    account: str
    """Of jobs that are over."""


TERMS: Mapping[str, Terms] = {
    "slurm": Terms(
        "Slurm",
        "slurmd",
        "slurmctld",
        "scontrol show job",
        "scontrol show node",
        "scontrol show partition",
        "sinfo -R",
        "squeue",
        "sacct -j",
    ),
    "torque": Terms(
        "Torque",
        "pbs_mom",
        "pbs_server",
        "qstat -f",
        "pbsnodes",
        "qstat -Qf",
        "pbsnodes -ln",
        "qstat -t",
        "tracejob",
    ),
    "openpbs": Terms(
        "OpenPBS",
        "pbs_mom",
        "pbs_server",
        "qstat -f",
        "pbsnodes -v",
        "qstat -Qf",
        "pbsnodes -l",
        "qstat -t",
        "qstat -xf",
    ),
    "gridengine": Terms(
        "Grid Engine",
        "sge_execd",
        "sge_qmaster",
        "qstat -j",
        "qhost -q -h",
        "qstat -g c",
        "qstat -f",
        "qstat",
        "qacct -j",
    ),
}
"""By the kind of batch system, of those that are polled."""

_GIVEN_UP = lasting(RESTART_S)
_DECIDED: Mapping[str, str] = {
    r"\bSlurm starts it when a job needs it": "Springtide starts it when a job needs it",
    r"\bby Slurm(?= for jobs? |[;,)]|$)": "by Springtide",
    r"\b(resume|suspend) by the batch system": r"\1 by Springtide",
    r"the batch system was asked to (start|stop) it": r"it was to \1, as asked",
    r" and Slurm has asked for it": " and is to start",
    r"finds out whether Slurm's programs run": "finds out what does not run",
    r"; Slurm still counts it as powering down": ", and counts as leaving {system}",
    r"Slurm counts it as off at the latest .+? after it began with that": (
        "Springtide counts it as off when it looks at {system} next"
    ),
    r", Slurm gives it up": ", Springtide lets it go",
    r"\bSlurm gives it up when it has been idle": "Springtide lets it go when it has been idle",
    r"until Slurm gives it up, when SlurmdTimeout is over \([^)]*\)": (
        f"until {{system}} has not heard from it for {_GIVEN_UP}"
    ),
    r"\bSlurm has let go of ([^\s;.]+)": r"\1 leaves {system}",
    r"; Slurm shows [A-Z]+\+(\S+)(?=\.$)": r"; {system} shows \1",
    r"; Slurm shows [A-Z]+(?=\.$)": "",
    r"Springtide tells Slurm that it may be started again": (
        "Springtide counts it as off, so that it may be started again"
    ),
    r"; Slurm may start it on ": "; it may start on ",
    r"\bSlurm launches it, at the latest \d+ s after the last node came": (
        "{system} launches it when it looks for jobs next"
    ),
    r"\bSlurm puts it back into the queue when it misses the node": (
        "Springtide has it put back into the queue, if it may run again"
    ),
    r"\bgiven back to Slurm, and its jobs to the queue": (
        "taken out of {system}, and its jobs given back to the queue"
    ),
    r"Springtide knows the tasks of arrays by numbers of their own, not as (\S+)": (
        r"{system} has no job \1"
    ),
    r"`squeue -h -j \S+ -o %A` prints the number; ask with that": (
        "`{list_jobs}` lists the jobs that there are"
    ),
    r"the batch system waits for it, but": "it is to start, but",
    r"the batch system asks for it afresh, but": "it is to start afresh, but",
    r"the batch system has powered it down, but": "it has left {system}, but",
    r"its instance is gone, but the batch system waits on": (
        "its instance is gone, but it still counts as leaving"
    ),
}
"""What is otherwise where a batch system is polled, Slurm too: mostly, who decides."""

_VERBS = (
    "'s to decide",
    " (?:shows|starts it|cleans up after|still cleans up|launches it|holds it|failed)",
    " does not (?:answer|know it|hear from it)",
    " knows (?:no job|of it)",
    " did not start it",
    " has not (?:said why|looked at it|missed it)",
    " has (?:given it up|heard from)",
    " (?:looks at it within|waits for|waited no longer|could not be told|hears from them)",
    " (?:itself drained it|drained it for a fault|keeps it)",
    ": [^)]*\\)",
)
_NAMED: Mapping[str, str] = {
    r"`scontrol show job (\S+?)`": r"`{show_job} \1`",
    r"`scontrol show node (\S+?)`": r"`{show_node} \1`",
    r"`scontrol show partition`": "`{show_queues}`",
    r"`scontrol release (\S+?)`": r"`qrls \1`",
    r"`scontrol update nodename=(\S+?) state=resume`": r"`tide undrain \1 --force`",
    r"`scontrol update jobid=(\S+?) starttime=now` starts it at once": (
        r"`{show_job} \1` tells more"
    ),
    r"`scancel (\S+?)`": r"`qdel \1`",
    r"`sprio -j (\S+?)` tells of its priority": r"`{show_job} \1` tells more",
    r"`sinfo -R`": "`{show_closed}`",
    r"`sacct -j (\S+?)`": r"`{account} \1`",
    rf"\bSlurm(?={'|'.join(_VERBS)})": "{system}",
    r"\bsmaller than Slurm is told": "smaller than {system} is told",
    r"\bnot the Slurm of the control host": "not the {system} of the control host",
    r"\bgiven to Slurm again": "given to {system} again",
    r"\bset it to FAIL in Slurm": "set it to FAIL in {system}",
    r"\ba slurmd answers in its name": "some {daemon} answers in its name",
    r"\bstrange slurmd put out of service": "strange {daemon} put out of service",
    r"\b(its|no|heard from|waits for) slurmd\b": r"\1 {daemon}",
    r"\bslurmctld(?= (?:answers|runs|does not|refuses its|has (?:another|not heard)))": "{server}",
    r"\bdoes not reach slurmctld": "does not reach {server}",
}
"""What things are called where the batch system is not Slurm."""
_STRANGERS: Mapping[str, str] = {
    "openpbs": (
        "one that somebody else made (without `resources_available.vntype=springtide`) it leaves "
        "alone: `pbsnodes -o NODE`, and when it has no jobs `qmgr -c 'delete node NODE'`"
    ),
    "gridengine": (
        "a host that somebody else added it leaves alone: `qmod -d '*@NODE'`, and when it has no "
        "jobs `qconf -ke NODE`, `qconf -dattr hostgroup hostlist NODE @GROUP` for each hostgroup "
        "that has it, `qconf -de NODE`"
    ),
}
"""How nodes are removed that bear our names and are not ours, where these can be told apart."""
_ATTACHED = re.compile(r"`tide deploy`(?= tells )|(?<=not deployed yet; run )`tide deploy`")
"""What `tide attach` does instead where the cluster is attached to a Slurm."""
_MAY_CHANGE = re.compile(
    r"[Ss]lurm|batch system|tasks of arrays|`s(?:control|cancel|prio|info|acct|queue) |"
    r"`tide (?:kill|deploy)"
)
"""Whether a text may have to do with it at all: most have not."""


@dataclass(frozen=True, slots=True)
class Voice:
    """How one batch system is spoken of."""

    changes: tuple[tuple[re.Pattern[str], str], ...] = ()

    def say(self, text: str) -> str:
        if not self.changes or not _MAY_CHANGE.search(text):
            return text
        for pattern, instead in self.changes:
            text = pattern.sub(instead, text)
        return text

    def tell(self, story: Story) -> Story:
        return replace(
            story,
            now=self.say(story.now),
            past=tuple((at, self.say(text)) for at, text in story.past),
            next=self.say(story.next),
            do=self.say(story.do),
        )

    def say_all(self, texts: Iterable[str]) -> list[str]:
        return [self.say(text) for text in texts]


def voice_of(spec: Cluster) -> Voice:
    """The voice for a cluster's batch system."""
    if spec.attached:
        return Voice(((_ATTACHED, "`tide attach`"),))
    polled = getattr(spec.batch, "polling", None) is not None
    return voice(spec.batch.kind if polled else "")


@cache
def voice(polled: str) -> Voice:
    """That for a kind of polled batch system; any other speaks as it is written."""
    terms = TERMS.get(polled)
    if terms is None:
        return Voice()
    table = _DECIDED if polled == "slurm" else {**_DECIDED, **_NAMED, **_ended(polled)}
    names = asdict(terms)
    return Voice(tuple((re.compile(key), text.format(**names)) for key, text in table.items()))


def _ended(polled: str) -> dict[str, str]:
    """What ends the service of a node that nobody asked for; its name may be known."""
    way = _STRANGERS.get(polled)
    if way is None:
        return {}
    named = way.replace("NODE", r"\1")
    return {
        r"`tide kill` ends its service": f"`tide kill` ends its service; {way}",
        r"`tide kill (\S+)` ends its service": rf"`tide kill \1` ends its service; {named}",
    }
