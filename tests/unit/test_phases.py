"""What a container node says of where its boot's time goes."""

from springtide import failures
from springtide.configure.phases import parse_console
from springtide.model import Node, Phase

CONSOLE = """\
springtide: phase started up 100.00
springtide: phase slurmd up 100.30
springtide: phase started up 200.10
waiting for the configuration /x
springtide: phase configuration up 202.60
springtide: phase mounts up 202.61
"""


def test_the_phases_of_the_last_boot_are_read_from_the_console() -> None:
    assert parse_console("n1", 3, CONSOLE, 1000.0) == [
        Phase("n1", 3, "started", 1200.1, 0.0),
        Phase("n1", 3, "configuration", 1202.6, 2.5),
        Phase("n1", 3, "mounts", 1202.61, 0.01),
    ]
    assert parse_console("n1", 3, "nothing of that kind\n", 1000.0) == []


def test_phases_are_never_taken_for_the_reason_of_a_failure() -> None:
    words = failures.classify(Node("n1", "g"), None, None, CONSOLE).words
    assert "phase" not in words
