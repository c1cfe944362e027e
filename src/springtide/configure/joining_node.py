"""The user data of a node that joins: it fetches the agent from the daemon and runs it.

Used by `cloud_node`. Short, since some clouds allow 16 KiB for it with the tokens of a hundred
nodes. `springtide.node` tells what comes then. Nothing in it is secret but the one-time token,
which the head of the script has put into the environment.
"""

from dataclasses import dataclass
from shlex import quote

from springtide.node.bundle import PLACE
from springtide.node.slurm import MASKED
from springtide.ports import Site

FALL_BACK_S = 60
"""So long without an answer, a node runs the agent of its last boot, or of its image."""

FETCH = """\
import hashlib, http.client, os, ssl, sys, time
agent = "{agent}"
host, _, port = os.environ["TIDE_CONTROL"].rpartition(":")

def fetched():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    line = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=15, context=context)
    line.connect()
    shown = hashlib.sha256(line.sock.getpeercert(True)).hexdigest()
    if shown != os.environ["TIDE_PIN"]:
        raise OSError("it shows another certificate than the one of our control host")
    line.request("GET", "/agent")
    answer = line.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise OSError("it answered %d" % answer.status)
    return text

began, pause, said = time.monotonic(), 1, False
while True:
    try:
        text = fetched()
    except (OSError, http.client.HTTPException) as error:
        if not said:
            print("springtide: waiting for the control host %s:%s: %s" % (host, port, error))
            sys.stdout.flush()
            said = True
        if time.monotonic() > began + {fall_back_s} and os.path.exists(agent):
            break
        time.sleep(pause)
        pause = min(2 * pause, 30)
        continue
    os.makedirs(os.path.dirname(agent), exist_ok=True)
    with open(agent + ".new", "wb") as file:
        file.write(text)
        os.fsync(file.fileno())
    os.chmod(agent + ".new", 0o755)
    os.rename(agent + ".new", agent)
    break
os.execv(sys.executable, [sys.executable, agent, "boot"])
"""

ONCE = """\
# Once in a boot: cloud-init runs this by itself at the first boot of an instance alone, but renews
# it at every boot, and runs what lies beside it then.
[ ! -e /run/springtide.booted ] || exit 0
: >/run/springtide.booted
case $0 in
/var/lib/cloud/*)
    again=/var/lib/cloud/scripts/per-boot
    mkdir -p "$again"
    printf '#!/bin/sh\\nexec %s\\n' "$0" >"$again/springtide"
    chmod 755 "$again/springtide"
    ;;
esac
"""

BOOT = (
    f"set -eu\n{ONCE}"
    + """
# No slurmd of the image: it would take jobs before the node is complete.
if [ -d /run/systemd/system ] && [ "$(readlink -f {unit})" != /dev/null ]; then
    systemctl mask --now slurmd >/dev/null 2>&1 || systemctl stop slurmd >/dev/null 2>&1 || :
fi
early=$(pidof slurmd 2>/dev/null) && kill $early || :

TIDE_CONTROL={control} TIDE_PIN={pin}
export TIDE_CONTROL TIDE_PIN
command -v python3 >/dev/null || {{
    echo "springtide: there is no python3: the image must have it, or its group be without join"
    exit 1
}}
exec python3 -c '{fetch}'
"""
)


@dataclass(frozen=True, slots=True)
class JoiningNode:
    """Where a node finds the daemon, and what it knows it by."""

    pin: str
    port: int
    address: str | None = None
    """The control host's, if nodes reach it by another one than the site's."""

    def user_data(self, site: Site) -> str:
        return render_boot(self.address or site.control_address, self.port, self.pin)


def render_boot(address: str, port: int, pin: str) -> str:
    """A shell script for nodes that reach the daemon there, and know it by the pin."""
    host = f"[{address}]" if ":" in address else address
    fetch = FETCH.format(agent=PLACE, fall_back_s=FALL_BACK_S)
    where = quote(f"{host}:{port}")
    return BOOT.format(control=where, pin=quote(pin), fetch=fetch, unit=MASKED)
