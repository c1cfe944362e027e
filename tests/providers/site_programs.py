"""Programs of a site, for tests: machines are files below a directory, as a power switch has them.

MACHINES/NODE/on        there while it is on; holds its address
MACHINES/NODE/said      the last word that its user data said
MACHINES/calls          a line for each call
MACHINES/refuse         how the next start is refused: `full`, `quota`, `denied`, `busy`, `wrong`
MACHINES/last           the number of the last address
MACHINES/lose           there if the next start is to be done and then to fail
"""

import sys
from pathlib import Path

PROGRAM = """\
#!/bin/sh
# Usage: power on|off|list|reset MACHINES
act=$1 machines=$2
echo "$act" >>"$machines/calls"
case $act in
on | reset)
    word=$(cat "$machines/refuse" 2>/dev/null) && rm "$machines/refuse"
    while read -r node generation image flavor zone market; do
        [ "$image" != no-such-image ] || { echo "$node wrong image $image is not known"; continue; }
        [ -z "$word" ] || { echo "$node $word as it was told to"; continue; }
        mkdir -p "$machines/$node"
        [ "$act" = on ] || rm -f "$machines/$node/on"
        [ -e "$machines/$node/address" ] || {
            number=$(cat "$machines/last" 2>/dev/null || echo 0)
            echo $((number + 1)) >"$machines/last"
            echo "127.65.$((number / 250)).$((1 + number % 250))" >"$machines/$node/address"
        }
        read -r address <"$machines/$node/address"
        TIDE_NODE=$node sh "$TIDE_USER_DATA" >"$machines/$node/said"
        echo "$address" >"$machines/$node/on"
        [ -e "$machines/lose" ] || echo "$node ok $address"
    done
    [ ! -e "$machines/lose" ] || { rm "$machines/lose"; echo "the line broke" >&2; exit 7; }
    ;;
off)
    while read -r node generation; do rm -f "$machines/$node/on"; done
    ;;
list)
    for home in "$machines"/*/; do
        [ -d "$home" ] || continue
        node=${home%/} node=${node##*/}
        if read -r address 2>/dev/null <"$home/on"; then
            echo "$node on $address"
        else
            echo "$node off"
        fi
    done
    ;;
esac
"""


def write(directory: Path) -> Path:
    program = directory / "power"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    write(Path(sys.argv[1]))
