"""What a node says of an ansible-pull that failed."""

import pytest

from springtide.node.features import ansible_trouble

IGNORED = """
PLAY [localhost] ***************************************************************

TASK [Ignore this] *************************************************************
[ERROR]: Task failed: Module failed: non-zero return code
fatal: [localhost]: FAILED! => {"changed": true, "cmd": ["false"], "msg": "not this", "rc": 1}
...ignoring
"""
FAILED = """
TASK [base : Install what is needed] *******************************************
[ERROR]: Task failed: Module failed: No package matching 'nosuch'
fatal: [localhost]: FAILED! => {"msg": "No package matching \\"nosuch\\"\\nis here"}
"""
RECAP = """
PLAY RECAP *********************************************************************
localhost                  : ok=1    changed=1    unreachable=0    failed=1    skipped=0
"""
SYNTAX = """
[ERROR]: couldn't resolve module/action 'nosuch.module'.
Origin: /root/.ansible/pull/jm-1/bad.yml:3:6

3    - nosuch.module: {}
       ^ column 6
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            IGNORED + FAILED + RECAP,
            'task base : Install what is needed: No package matching "nosuch" is here',
        ),
        (SYNTAX, "[ERROR]: couldn't resolve module/action 'nosuch.module'."),
        ("ERROR! the playbook could not be found\n", "ERROR! the playbook could not be found"),
        (
            "TASK [Odd] ***\nfatal: [localhost]: UNREACHABLE!\n",
            "task Odd: fatal: [localhost]: UNREACHABLE!",
        ),
        ("ansible-pull took more than 3600 s", "ansible-pull took more than 3600 s"),
        ("", "it said nothing"),
    ],
)
def test_the_task_that_failed_is_named_and_what_it_said(said: str, why: str) -> None:
    assert ansible_trouble(said) == why
