"""Commands as people who are not root run them, wherever this checkout is."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
OPEN_THE_WAY = """\
top=$1 user=$2
shift 2
closed=
for ((dir = 1; dir < ${#top}; dir++)); do
    part=${top:0:dir}
    [[ ${top:dir:1} = / && $(($(stat -Lc 0%a "$part") & 1)) = 0 ]] && closed=$part && break
done
cd /
if [ -n "$closed" ]; then # such as root's own directory
    mount --rbind "$top" /mnt
    mount -t tmpfs -o mode=755 tmpfs "$closed"
    mkdir -p "$top"
    mount --rbind /mnt "$top"
fi
exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "$@"
"""


def as_user(user: str, *command: str) -> list[str]:
    """The command that runs another as this user, who sees the checkout if others may not."""
    spaces = ["unshare", "--mount", "bash", "-eu"]
    return [*spaces, "-c", OPEN_THE_WAY, "as-user", str(TOP), user, *command]
