"""How container nodes know the people of the cluster: a part of their boot script.

Files of users lie in the configuration that all of them see. libnss-extrausers reads such files
beside /etc/passwd, so whoever is added or removed is known, or gone, at once. An image without
that library takes over who is there when it boots, and notes them: an image of the node forgets
them again (`providers.containers.identity`).
"""

from pathlib import Path
from shlex import quote

KNOWN = "known_hosts"
"""Beside the files of users; it follows the nodes that the cluster file has."""
PLACE = "/var/lib/extrausers"
"""Where the library looks."""
NOTED = "/etc/springtide.people"
"""What an image without it took over: files of /etc, and names in them."""
LIBRARY = "libnss_extrausers.so.2"
BOOT = """\
# People of the cluster: as they come and go if the image has {library}, else as they are now.
people={people} can=
for each in /usr/lib/{library} /usr/lib64/{library} /usr/lib/*/{library}; do
    [ ! -e "$each" ] || can=yes
done
if [ "$can" ]; then
    [ -L {place} ] || rm -rf {place}
    ln -sfn "$people" {place}
    sed -i -E '/^(passwd|group|shadow):/{{/extrausers/!s/$/ extrausers/}}' /etc/nsswitch.conf
elif [ -e "$people/passwd" ]; then
    # Who is ours is noted before the lines are there.
    add() {{
        echo "$each $name" >>{noted}
        if [ "$each" = passwd ] && ! grep -q "^$found:" /etc/shadow; then
            echo "shadow $name" >>{noted}
            grep "^$found:" "$people/shadow" >>/etc/shadow || true
        fi
        printf '%s\\n' "$line" >>"/etc/$each"
    }}
    # One who has the id of another would own what is the other's.
    for each in group passwd; do
        while IFS= read -r line; do
            name=${{line%%:*}} id=${{line#*:*:}}
            id=${{id%%:*}} found=$name
            case $name in *.*) found=$(printf %s "$name" | sed 's/[.]/[.]/g') ;; esac
            known=$(grep -m1 -e "^$found:" -e "^[^:]*:[^:]*:$id:" "/etc/$each") || known=
            case $known in
            "") add ;;
            "$name":*:"$id":*) ;;
            *)
                echo "$name ($id) of the cluster is not known here, for /etc/$each of the image" \\
                    "has $known: remove that, or give the cluster's another name or id"
                ;;
            esac
        done <"$people/$each"
    done
fi
"""
LOGIN = """\
# People log in with the keys in their homes, and from node to node without being asked whether
# they know it: all container nodes have one host key, and the file names these nodes alone.
# Without people there is nobody to wait for.
if [ -s "$people/passwd" ] && [ -s {host_key} ] && [ -x /usr/sbin/sshd ]; then
    ln -sfn "$people/{known}" /etc/ssh/ssh_known_hosts
    mkdir -p /run/sshd
    /usr/sbin/sshd -f /dev/null -o HostKey={host_key} -o PidFile=none -o UsePAM=no \\
        -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o PermitRootLogin=no \\
        -o ListenAddress="$TIDE_ADDRESS" -o Subsystem='sftp internal-sftp' ||
        echo "sshd did not start: people cannot log in"
fi &
"""
"""Unless Ansible's sshd is there, which lets them in as well."""


def render_boot(people: Path, host_key: Path | None) -> str:
    """For a node that sees the directory `people`, if there is anybody, at this path."""
    known = BOOT.format(people=quote(str(people)), place=PLACE, library=LIBRARY, noted=NOTED)
    return known + (_login(host_key) if host_key else "")


def _login(host_key: Path) -> str:
    return LOGIN.format(host_key=quote(str(host_key)), known=KNOWN)


def render_switch(nsswitch: str) -> str:
    """An nsswitch.conf with which the library is asked, after all others."""
    return "".join(f"{_asked(line)}\n" for line in nsswitch.splitlines())


def _asked(line: str) -> str:
    database = line.partition(":")[0].strip()
    if database not in ("passwd", "group", "shadow") or "extrausers" in line:
        return line
    return f"{line.partition('#')[0].rstrip()} extrausers"
