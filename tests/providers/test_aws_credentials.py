"""Credentials that a command gives: AWS's own files may name one, and no secret is in any file."""

import logging
from pathlib import Path

import pytest

from springtide.ports import CloudError, Launch
from tests.providers.servers.aws_world import Account
from tests.providers.world import BLUE, delete_until_gone

SECRET = "of-a-command-7f3a-not-a-real-one"
GIVES = """\
#!/bin/sh
echo "$@" >>{place}/asked
echo '{{"Version": 1, "AccessKeyId": "AKIACOMMAND", "SecretAccessKey": "{secret}"}}'
"""
FAILS = """\
#!/bin/sh
echo {secret}
echo "the vault is locked" >&2
exit 1
"""


@pytest.fixture
def vault(account: Account, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command of the site, which AWS's own configuration names for a profile."""
    place = account.directory
    account.credentials.unlink()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    config = place / "config"
    config.write_text(f"[profile burst]\ncredential_process = {place}/vault --for burst\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(place / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    command = place / "vault"
    command.write_text(GIVES.format(place=place, secret=SECRET))
    command.chmod(0o700)
    return command


@pytest.mark.accepts("N15")
async def test_a_credential_that_a_command_gives_works_and_is_left_nowhere(
    account: Account,
    vault: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    account.server.signed_by.clear()
    provider = account.open(credentials=None, profile="burst")
    launch = Launch(BLUE, "n0", 1, "general", "base", "small", user_data="say hello\n")
    made = await provider.create([launch])
    assert not any(isinstance(one, CloudError) for one in made.values()), made
    (one,) = await provider.list(BLUE)
    assert account.server.signed_by == {"AKIACOMMAND"}, "no other credential was used"
    assert (account.directory / "asked").read_text().splitlines()[0] == "--for burst"
    await delete_until_gone(provider, BLUE)
    said = capfd.readouterr()
    assert SECRET not in f"{caplog.text}{said.out}{said.err}{made}{one}{provider!r}"
    assert SECRET not in str(account.server.ec2.booted), "nor does the node have it"
    files = [path for path in account.directory.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET in path.read_text(errors="replace")] == [vault]


@pytest.mark.accepts("N15")
async def test_a_command_that_fails_is_told_of_without_what_it_printed(
    account: Account, vault: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    vault.write_text(FAILS.format(secret=SECRET))
    with pytest.raises(CloudError) as caught:
        await account.open(credentials=None, profile="burst").list(BLUE)
    assert "the vault is locked" in str(caught.value)
    assert SECRET not in f"{caught.value!r}{caplog.text}"
