"""The seed of a machine: a small CD that cloud-init reads at boot ("NoCloud").

`render_files` is pure. The CD is written by genisoimage, here, and put beside the machine's
disk by libvirt, wherever that is.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from springtide.ports import CloudError, Launch, Rejected
from springtide.providers.cloud import script
from springtide.providers.libvirt.marks import Mark

LABEL = "cidata"
LIMIT_S = 60.0


def render_files(mark: Mark, launch: Launch) -> dict[str, str]:
    """Each boot of ours is another instance to cloud-init: so it runs the user data it finds."""
    meta = {"instance-id": f"{mark.id}.{mark.boot}", "local-hostname": mark.node}
    link = {"match": {"macaddress": mark.mac}, "dhcp4": True}
    return {
        "meta-data": _laid_out(meta),
        "user-data": script.named(launch),
        "network-config": _laid_out({"version": 2, "ethernets": {"net0": link}}),
    }


def _laid_out(data: Mapping[str, object]) -> str:
    """JSON is YAML."""
    return json.dumps(data, indent=1) + "\n"


def written(files: Mapping[str, str]) -> bytes:
    """The CD."""
    with tempfile.TemporaryDirectory(prefix="tide-seed-") as name:
        place = Path(name, "files")
        place.mkdir()
        for key, text in files.items():
            (place / key).write_text(text)
        return _burnt(place, Path(name, "seed.iso"))


def _burnt(place: Path, to: Path) -> bytes:
    command = ["genisoimage", "-quiet", "-V", LABEL, "-J", "-r", "-o", str(to), str(place)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        raise Rejected(
            "genisoimage is not installed here, and writes the seeds of machines: install the "
            "package genisoimage"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CloudError(f"the seed was not written: {error}") from error
    if done.returncode:
        raise CloudError(f"genisoimage failed: {done.stderr.decode(errors='replace')[-300:]}")
    return to.read_bytes()
