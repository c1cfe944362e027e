"""How an instance of EC2 learns who it is: it asks its metadata service (IMDSv2 alone)."""

_META = "http://169.254.169.254/latest"
_TOKEN = (
    f"tide_token=$(curl -sSf --retry 10 --retry-connrefused -X PUT "
    f"-H 'X-aws-ec2-metadata-token-ttl-seconds: 600' {_META}/api/token)"
)
_GET = f'curl -sSf -H "X-aws-ec2-metadata-token: $tide_token" {_META}/meta-data'

LAUNCH_INDEX = f"{_TOKEN} && {_GET}/ami-launch-index"
"""Prints which instance of its launch it is."""

PATIENCE_S = 600
"""Instances of a fleet are named after they were made; who is not by then never will be."""


def tag(key: str) -> str:
    """Prints a tag of the instance's own, once it has it."""
    return (
        f"{_TOKEN} || exit 1; tide_tries=0; "
        f"until {_GET}/tags/instance/{key} 2>/dev/null; do "
        f"tide_tries=$((tide_tries + 1)); [ $tide_tries -lt {PATIENCE_S} ] || exit 1; "
        "sleep 1; done"
    )
