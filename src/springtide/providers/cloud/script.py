"""The user data of cloud instances: who it is first, then what it is to do.

TIDE_TOKEN lets the instance join, once: the only thing here that is not for everybody.
"""

from collections.abc import Sequence
from shlex import quote

from springtide.ports import Launch

_INDEXED = """\
#!/bin/sh
# Instances of one launch share this script; which of these nodes it is, its index tells.
tide_index=$({index}) || exit 1
set -- {members}
shift "$tide_index"
TIDE_TOKEN=${{1##*:}} TIDE_NODE=${{1%:*}}
TIDE_GENERATION=${{TIDE_NODE##*:}} TIDE_NODE=${{TIDE_NODE%:*}}
"""
_NAMED = """\
#!/bin/sh
TIDE_NODE={node} TIDE_GENERATION={generation} TIDE_TOKEN={token}
"""
_ASKED = """\
#!/bin/sh
TIDE_NODE=$({node}) || exit 1
TIDE_GENERATION=$({generation}) || exit 1
TIDE_TOKEN=$({token}) || exit 1
"""
_LISTED = """\
#!/bin/sh
# TIDE_NODE tells which of these nodes it is.
: "${{TIDE_NODE:?must say which node this machine is}}"
TIDE_GENERATION= TIDE_TOKEN=
for tide_each in {members}; do
    [ "${{tide_each%:*:*}}" = "$TIDE_NODE" ] || continue
    TIDE_TOKEN=${{tide_each##*:}} tide_each=${{tide_each%:*}}
    TIDE_GENERATION=${{tide_each##*:}}
done
[ "$TIDE_GENERATION" ] || {{ echo "this script is not for $TIDE_NODE"; exit 1; }}
"""
_TOKENS = """\
TIDE_TOKEN=
for tide_each in {tokens}; do
    [ "${{tide_each%:*}}" != "$TIDE_NODE" ] || TIDE_TOKEN=${{tide_each##*:}}
done
"""
_CONFIG = "text/cloud-config"
_SCRIPT = "text/x-shellscript"
_PART = """\
--{boundary}
Content-Type: {type}; charset="utf-8"
MIME-Version: 1.0

{text}
"""
_BOUNDARY = "==springtide=="
_EXPORT = "export TIDE_CLUSTER TIDE_NODE TIDE_GENERATION TIDE_TOKEN\n"
_REST = "TIDE_CLUSTER={cluster}\n" + _EXPORT


def named(launch: Launch) -> str:
    """For an instance of its own."""
    head = _NAMED.format(
        node=quote(launch.node), generation=launch.generation, token=quote(launch.token)
    )
    return whole(launch, head + rest(launch))


def listed(launches: Sequence[Launch]) -> str:
    """For machines that are told in TIDE_NODE who they are."""
    return _LISTED.format(members=_members(launches)) + rest(launches[0])


def indexed(launches: Sequence[Launch], index: str) -> str:
    """For instances of one launch: `index` is a shell command that prints the instance's own."""
    text = _INDEXED.format(index=index, members=_members(launches)) + rest(launches[0])
    return whole(launches[0], text)


def _members(launches: Sequence[Launch]) -> str:
    return " ".join(quote(f"{one.node}:{one.generation}:{one.token}") for one in launches)


def asked(launch: Launch, node: str, generation: str, token: str) -> str:
    """For instances that are named once they are there: shell commands print who it is."""
    text = _ASKED.format(node=node, generation=generation, token=token) + rest(launch)
    return whole(launch, text)


def tokens(launches: Sequence[Launch]) -> str:
    """Finds the token of TIDE_NODE."""
    listed = " ".join(quote(f"{one.node}:{one.token}") for one in launches)
    return _TOKENS.format(tokens=listed)


def rest(launch: Launch) -> str:
    """The cluster, and the launch's own part of the script."""
    return _REST.format(cluster=quote(launch.cluster)) + launch.user_data


def whole(launch: Launch, text: str) -> str:
    """The script; with a cloud-config of the site's, both in one that cloud-init takes apart."""
    if not launch.cloud_config:
        return text
    parts = {_CONFIG: launch.cloud_config, _SCRIPT: text}
    laid_out = (_PART.format(boundary=_BOUNDARY, type=k, text=t) for k, t in parts.items())
    head = f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"\nMIME-Version: 1.0\n\n'
    return f"{head}{''.join(laid_out)}--{_BOUNDARY}--\n"


def told(text: str) -> str:
    """The launch's own part of the script in such a text."""
    return text.partition(_EXPORT)[2].partition(f"\n--{_BOUNDARY}--")[0]
