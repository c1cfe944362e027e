"""Our Ansible roles as a script of a build: the builder applies them to itself.

A builder is nobody's node: it has no key of the cluster's and is reached by nobody. So the roles
are in the script, and what they would need to know of the cluster counts as provided: they only
install software. `builds` puts it before the scripts of the site.
"""

import json
import sys
from base64 import encodebytes
from collections.abc import Sequence
from gzip import compress
from io import BytesIO
from shlex import quote
from tarfile import TarFile, TarInfo
from typing import Any, get_args

from springtide.configure.ansible_run import ROLES
from springtide.configure.building import Script
from springtide.spec.joining import FEATURES, ImageRole

_SCRIPT = """\
#!/bin/sh
set -eu
place=/tmp/springtide.roles
rm -rf "$place"
mkdir "$place"
base64 -d >"$place/roles.tar.gz" <<'END'
{roles}END
tar -x -z -C "$place" -f "$place/roles.tar.gz"
cat >"$place/play.yml" <<'END'
{play}
END
# Images often come without package lists; what needs none works without a mirror too.
if command -v apt-get >/dev/null && ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    apt-get update || echo "package lists could not be fetched"
fi
# Ansible of this machine, if the image is this machine's root; else the image's own, or a new one.
if {python} -c 'import ansible' 2>/dev/null; then
    set -- {python} -m ansible playbook
else
    command -v ansible-playbook >/dev/null || apt-get install -y ansible-core ||
        dnf install -y ansible-core ||
        {{ echo "no ansible-playbook in the base image, and none could be installed"; exit 1; }}
    set -- ansible-playbook
fi
export HOME=/root LC_ALL=C.UTF-8 ANSIBLE_HOME="$place" ANSIBLE_NOCOLOR=1
export ANSIBLE_ROLES_PATH="$place" ANSIBLE_LOCAL_TEMP="$place/tmp" ANSIBLE_REMOTE_TEMP="$place/tmp"
"$@" --inventory localhost, --connection local "$place/play.yml"
rm -rf "$place"
"""


def known() -> list[str]:
    """The roles that an image can have."""
    return list(get_args(ImageRole))


def roles_script(cluster: str, roles: Sequence[str]) -> Script:
    text = _SCRIPT.format(
        roles=encodebytes(_packed(roles)).decode(),
        play=json.dumps(render_play(cluster, roles), indent=1),
        python=quote(sys.executable),
    )
    return Script(f"roles {', '.join(roles)}", text)


def render_play(cluster: str, roles: Sequence[str]) -> list[dict[str, Any]]:
    nothing = dict.fromkeys(("certificates", "time", "mounts", "users", "groups"), ())
    told = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "tide_cluster": cluster,
        "tide_image": True,
        "tide_provided": FEATURES,
        "tide_hosts": {},
        "tide_nfs_server": "none",
        **{f"tide_{key}": value for key, value in nothing.items()},
    }
    return [{"name": "springtide", "hosts": "all", "vars": told, "roles": list(roles)}]


def _packed(roles: Sequence[str]) -> bytes:
    """The same roles are always the same bytes."""
    made = BytesIO()
    with TarFile(fileobj=made, mode="w") as archive:
        for path in sorted(one for role in roles for one in (ROLES / role).rglob("*")):
            if path.is_file():
                entry = TarInfo(str(path.relative_to(ROLES)))
                entry.size, entry.mode = path.stat().st_size, 0o644
                archive.addfile(entry, BytesIO(path.read_bytes()))
    return compress(made.getvalue(), mtime=0)
