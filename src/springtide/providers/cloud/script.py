"""The user data of cloud instances: who it is first, then what it is to do."""

from collections.abc import Sequence
from shlex import quote

from springtide.ports import Launch
from springtide.providers.cloud.roster import Member

_INDEXED = """\
#!/bin/sh
# Instances of one launch share this script; which of these nodes it is, its index tells.
tide_index=$({index}) || exit 1
set -- {members}
shift "$tide_index"
TIDE_NODE=${{1%:*}} TIDE_GENERATION=${{1##*:}}
"""
_NAMED = """\
#!/bin/sh
TIDE_NODE={node} TIDE_GENERATION={generation}
"""
_ASKED = """\
#!/bin/sh
TIDE_NODE=$({node}) || exit 1
TIDE_GENERATION=$({generation}) || exit 1
"""
_EXPORT = "export TIDE_CLUSTER TIDE_NODE TIDE_GENERATION\n"
_REST = "TIDE_CLUSTER={cluster}\n" + _EXPORT


def named(launch: Launch) -> str:
    """For an instance of its own."""
    head = _NAMED.format(node=quote(launch.node), generation=launch.generation)
    return head + _rest(launch)


def indexed(launch: Launch, members: Sequence[Member], index: str) -> str:
    """For instances of one launch: `index` is a shell command that prints the instance's own."""
    listed = " ".join(quote(f"{node}:{generation}") for node, generation in members)
    return _INDEXED.format(index=index, members=listed) + _rest(launch)


def asked(launch: Launch, node: str, generation: str) -> str:
    """For instances that are named once they are there: shell commands print who it is."""
    return _ASKED.format(node=node, generation=generation) + _rest(launch)


def told(text: str) -> str:
    """The launch's own part of such a script."""
    return text.partition(_EXPORT)[2]


def _rest(launch: Launch) -> str:
    return _REST.format(cluster=quote(launch.cluster)) + launch.user_data
