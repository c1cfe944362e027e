"""What must not be in a bundle is taken out of any text, in whatever form it is there."""

import json
import os
import random
import textwrap
import time
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from springtide.bundle.lines import MASK
from springtide.bundle.masks import Masks, Secret
from springtide.bundle.parts import Part

VALUE = b"hunter2-Tr0ub4dor&3"
NONE = Masks([])
KEY = random.Random(7).randbytes(1024)


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        b64encode(VALUE),
        b64encode(b"x" + VALUE + b"yz"),
        b64encode(b"#cloud-config\nwrite_files: [" + VALUE + b"]\n"),
        urlsafe_b64encode(b"??" + VALUE + b">>"),
        VALUE.hex().encode(),
        VALUE.hex().upper().encode(),
        quote(VALUE).encode(),
    ],
)
def test_a_known_value_is_found_in_any_form(text: bytes) -> None:
    masked = Masks([Secret("password", VALUE)]).apply(b"before " + text + b" after\n")
    assert masked.found == {"password": 1}
    assert MASK in masked.content
    assert masked.content.startswith(b"before ")
    assert masked.content.endswith(b" after\n")


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize(
    "text",
    [
        KEY,
        KEY[100:200],
        b64encode(KEY),
        b64encode(b"a" + KEY),
        "\n".join(textwrap.wrap(b64encode(KEY).decode(), 76)).encode(),
        "\n".join(textwrap.wrap(b64encode(KEY).decode(), 64)).encode(),
        KEY.hex().encode(),
        KEY.hex().upper().encode(),
    ],
)
def test_where_a_part_of_a_key_is_nothing_around_it_is_kept(text: bytes) -> None:
    masked = Masks([Secret("munge.key", KEY, binary=True)]).apply(b"before\n" + text + b"\nafter")
    assert masked.content == b"left out: munge.key was in it\n"
    assert masked.found == {"munge.key": 1}


SECRETS = [
    (b"password: opensesame", b"opensesame"),
    (b'{"clientSecret": "open\\"sesame", "x": 1}', b"sesame"),
    (b"StoragePass=opensesame\n", b"opensesame"),
    (b"AccountingStoragePass = opensesame # note", b"opensesame"),
    (b'{"detail": "{\\"token\\": \\"opensesame\\"}"}', b"opensesame"),
    (b"ldap_default_authtok = opensesame", b"opensesame"),
    (b"create: [ipmi, --password, opensesame]", b"opensesame"),
    (b"ran ipmitool -U a --password opensesame on c1", b"opensesame"),
    (b"OS_PASSWORD=open,sesame;x", b"sesame"),
    (b"https://me:opensesame@cloud.example/v3", b"opensesame"),
    (b"Authorization: Bearer opensesame.opensesame", b"opensesame"),
    (b"token 1800000000.AbCdEfGhIjKlMnOpQrStUv in user data", b"AbCdEfGhIjKlMnOpQrStUv"),
    (b"key AKIAIOSFODNN7EXAMPLE used", b"AKIAIOSFODNN7EXAMPLE"),
    (b"root:$6$salt$opensesameopensesame:1:2", b"opensesame"),
    (b"-----BEGIN PRIVATE KEY-----\nopensesame\n-----END PRIVATE KEY-----\n", b"opensesame"),
    (b"-----BEGIN OPENSSH PRIVATE KEY-----\nopensesame cut here", b"opensesame"),
    (b"opensesame\nopensesame\n-----END RSA PRIVATE KEY-----\n", b"opensesame"),
    (b"create:\n  - ipmi\n  - --password\n  - opensesame\n", b"opensesame"),
    (b"create: [ipmi,--password,opensesame]", b"opensesame"),
    (b'["ipmi","--password","opensesame"]', b"opensesame"),
    (b'[\n "ipmi",\n "--password",\n "opensesame"\n]', b"opensesame"),
    (b"password:\n  opensesame\n", b"opensesame"),
    (b"password: |\n  more\n  opensesame\nend", b"opensesame"),
    (b"password: >-\n  opensesame\n", b"opensesame"),
    (b"password: 'it''s opensesame'\n", b"opensesame"),
    (b"password: '\n  opensesame'\n", b"opensesame"),
    (b"tokens:\n- one\n- opensesame\n", b"opensesame"),
    (b"Set-Cookie: a=opensesame\n", b"opensesame"),
    (b"password: correct opensesame\n", b"opensesame"),
    (b'password: " opensesame"\n', b"opensesame"),
    (b'{"d": "{\\"password\\": \\"a opensesame\\"}"}', b"opensesame"),
    (b"Authorization: Basic b3BlbnNlc2FtZQ==", b"b3BlbnNlc2FtZQ"),
    (b"<password>opensesame</password>", b"opensesame"),
    (b"('password', 'opensesame')", b"opensesame"),
    (b"--password -opensesame", b"opensesame"),
    (b"password => opensesame", b"opensesame"),
    (b"password := opensesame", b"opensesame"),
    (b"PASSWORD+=opensesame\nDB_PASSWORD=opensesame", b"DB_PASSWORD=opensesame"),
    (b"$password$ = opensesame", b"opensesame"),
    (b"SLURM_JWT=opensesame", b"opensesame"),
    (b"AZURE_STORAGE_KEY=opensesame", b"opensesame"),
    (b"API_KEY_PROD=opensesame", b"opensesame"),
    (b"MY_TOKEN_2=opensesame", b"opensesame"),
    (b"bind_pw=opensesame", b"opensesame"),
    (b"passcode=opensesame", b"opensesame"),
    (b"Server=db;Uid=sa;Pwd=opensesame;", b"opensesame"),
    (b"//registry.example/:_authToken=opensesame", b"opensesame"),
    (b"aws_secret_access_key = /opensesame", b"opensesame"),
    (b"https://opensesame@cloud.example/", b"opensesame"),
    (b"https://me:open/sesame@cloud.example/", b"sesame"),
    (b"https://me:p@opensesame@cloud.example/", b"opensesame"),
    (b"https://me:opensesame'x@cloud.example/", b"opensesame"),
    (b'"-----BEGIN RSA PRIVATE KEY-----\\nopensesame\\n-----END RSA PRIVATE KEY-----"', b"sesame"),
]


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_that_nobody_knows_goes_by_its_name_or_shape(text: bytes, secret: bytes) -> None:
    masked = NONE.apply(b"first one.\n" + text)
    assert secret not in masked.content
    assert masked.found
    assert masked.content.startswith(b"first one.")


@pytest.mark.parametrize(
    "text",
    [
        b"credentials: /etc/springtide/clouds.yaml\n",
        b"munge_key: /etc/munge/munge.key\n",
        b"join refused: the token has expired\n",
        b"SlurmctldHost=head(10.0.0.1)\nAuthType=auth/munge\nPartitionName=main Nodes=c[1-4]\n",
        b'{"password": null, "token": ""}\n',
        b"timestamp=2026-11-16T16:15:53.123456Z level=info event='instance created' node=c1\n",
        b"AccountingStoragePass=/run/springtide/munge/munge.socket.2\n",
        b"TOKEN_FILE=/run/token PWD=/root\n",
        b"https://cloud.example:5000/v3 and 10.0.0.1:6817 at 1800000000.25\n",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: bytes) -> None:
    masked = NONE.apply(text)
    assert (masked.content, masked.found) == (text, {})


def test_what_was_masked_once_stays_so() -> None:
    once = NONE.apply(b"password: opensesame\n--token x1234\n").content
    assert NONE.apply(once).content == once
    assert not NONE.apply(once).found


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize(
    "value",
    [
        {"create": ["ipmi", "--password", "opensesame"]},
        {"auth": {"password": "it's an opensesame"}},
        {"secrets": {"a": ["opensesame", 1]}},
        {"env": [{"name": "OS_PASSWORD", "value": "opensesame"}]},
        {"detail": json.dumps({"token": 'a "b" opensesame'})},
        {"said": "first\npassword: correct opensesame\nlast"},
        {"password": "x", "said": "https://me:opensesame@cloud.example/"},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_of_data_what_is_called_a_secret_goes_and_data_it_stays(
    value: object, separators: tuple[str, str]
) -> None:
    text = json.dumps([value, {"node": "c1"}], separators=separators).encode()
    for name, raw in (("a.json", text), ("a.jsonl", text + b"\n" + text)):
        masked = NONE.clean(Part(name, raw))
        assert b"opensesame" not in masked.content
        assert masked.found
        rows = masked.content.splitlines() if name == "a.jsonl" else [masked.content]
        assert [json.loads(row)[1] for row in rows] == [{"node": "c1"}] * len(rows)


def test_of_data_a_known_value_goes_in_whatever_letters_it_is_written() -> None:
    masks = Masks([Secret("password", "ä-sesame".encode()), Secret("number", b"47110815")])
    for text in (b'{"x": "\\u00e4-sesame"}', '{"x": "ä-sesame"}'.encode(), b'{"x": 47110815}'):
        masked = masks.clean(Part("a.json", text))
        assert masked.found
        assert b"sesame" not in masked.content
        assert b"47110815" not in masked.content
    long = json.dumps({"x": "a" * 1990 + "47110815" * 300}).encode()
    assert b"4711" not in masks.clean(Part("a.json", long)).content, "before it is cut"


def test_of_a_key_forty_bytes_are_found_wherever_they_are_from() -> None:
    masks = Masks([Secret("munge.key", KEY, binary=True)])
    for start in range(len(KEY) - 40):
        part = KEY[start : start + 40]
        assert masks.known(part).found
        if start % 7 == 0:
            assert masks.known(part.hex(":").encode()).found
            assert masks.known(json.dumps({"x": b64encode(part).decode()}).encode()).found


def test_a_text_that_was_encoded_is_found_over_the_ends_of_lines() -> None:
    lines = "\n".join(textwrap.wrap(b64encode(b"x" * 50 + VALUE).decode(), 76)).encode()
    masked = Masks([Secret("password", VALUE)]).apply(lines)
    assert masked.content == b"left out: password was in it\n"


def test_a_secret_shows_its_value_to_nobody() -> None:
    assert VALUE.decode() not in repr(Secret("password", VALUE))


@pytest.mark.parametrize(
    "text",
    [
        b"a" * (1 << 20),
        b"passw" * 200_000,
        b"password" + b"-" * 1_000_000,
        b"A+/=\n" * 200_000,
        b"-----BEGIN " * 90_000,
        b"password: " * 100_000,
        b"://" * 300_000,
        b"://" + b":" * (1 << 20),
        (b"://" + b":" * 1000 + b"\n") * 1000,
        b"eyJ-" * (1 << 18),
        b"eyJ-aaaaaaaaaa." * 70_000,
        b"password\\" * 100_000,
        b"--token, " * 100_000,
        b"-----BEGIN PRIVATE KEY-----\n" * 40_000,
        b"A\n" * 300_000 + b"-----END PRIVATE KEY-----\n" * 9000,
        json.dumps([{"password": "://:" * 200, "x": "$1$" * 500}] * 400).encode(),
        os.urandom(1 << 20),
    ],
)
def test_no_text_takes_long(text: bytes) -> None:
    masks = Masks([Secret("munge.key", KEY, binary=True), Secret("password", VALUE)])
    before = time.process_time()
    masks.apply(text)
    if text.startswith(b"["):
        masks.clean(Part("a.json", text))
    assert time.process_time() - before < 5
