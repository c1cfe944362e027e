"""What is kept of a cluster's file, whoever writes it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from springtide.layout import Layout


def test_those_who_keep_the_file_at_the_same_time_are_not_in_each_others_way(
    tmp_path: Path,
) -> None:
    """As several deploys do, and the daemon that one of them starts."""
    layout = Layout(tmp_path)
    texts = [f"cluster: c{number}\n".encode() * 1000 for number in range(8)]
    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(layout.keep_spec, texts * 25))
    assert layout.stored_spec.read_bytes() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]
    assert layout.stored_spec.stat().st_mode & 0o777 == 0o600


def test_a_copy_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.stored_spec.mkdir()
    with pytest.raises(OSError, match="directory"):
        layout.keep_spec(b"cluster: blue\n")
    assert list(tmp_path.iterdir()) == [layout.stored_spec]
