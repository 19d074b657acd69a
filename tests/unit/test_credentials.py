"""LoadCredential: what is read, what is refused, and what is not shown."""

from __future__ import annotations

import json
import logging
from io import StringIO
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor.configuration import config_digest
from supervisor.service.credentials import CredentialError, Secrets, read_credentials
from supervisor.service.launch import LaunchError, unit_launch
from supervisor.service.launch_files import LaunchFiles
from supervisor.shared import logs
from supervisor.shared.small_file import LIMIT_BYTES
from supervisor.unit.events import CriticalProcessDied, NotReady
from supervisor.unit.expand import expand, undefined_variables
from supervisor.unit.model import Command, Engine, Execution, HttpCheck, Probe, Probes, Service, Unit

SECRET = "hunter2-hunter2"


def unit(path: Path, *, engine: Engine | None = None, name: str = "token") -> Unit:
    execution = Execution(credentials=((name, str(path)),), environment=(("KEY", "k=${CREDENTIAL:token}"),))
    service = Service(exec_start=Command(("serve", "--key", "${CREDENTIAL:token}")), execution=execution)
    probe = Probe(HttpCheck("http://h/", headers=(("Authorization", "Bearer ${CREDENTIAL:token}"),)))
    return Unit("web", Path("web.toml"), service=service, probes=Probes(readiness=probe), engine=engine)


def test_it_stands_in_every_string_of_its_unit_and_in_no_other_place(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    launch = trio.run(unit_launch, unit(path), {"PATH": "/bin"}, {})
    assert launch.argv == ("serve", "--key", SECRET)
    assert launch.probes.readiness is not None
    assert launch.probes.readiness.check == HttpCheck("http://h/", headers=(("Authorization", f"Bearer {SECRET}"),))
    assert dict(launch.environment) == {"PATH": "/bin", "KEY": f"k={SECRET}", "PODVISOR_UNIT": "web"}
    other = Unit("other", Path("other.toml"), service=Service(exec_start=Command(("serve", "${CREDENTIAL:token}"))))
    with pytest.raises(LaunchError, match="CREDENTIAL:token"):
        trio.run(unit_launch, other, {"PATH": "/bin"}, {})


def test_it_is_read_anew_for_every_start(tmp_path: Path) -> None:
    path, files = tmp_path / "token", LaunchFiles()
    for secret in ("first-secret", "second-secret"):
        path.write_text(secret)
        assert trio.run(unit_launch, unit(path), {}, {}, files).argv[-1] == secret
    assert files.secrets.redact("first-secret, second-secret") == "[redacted token], [redacted token]"


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "cannot read PATH: No such file or directory"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a\0b", "NUL"),
        (b"x" * (LIMIT_BYTES + 1), "larger than"),
    ],
)
def test_what_cannot_be_read_fails_the_start_and_says_why(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LaunchError, match=message.replace("PATH", str(path))) as caught:
        trio.run(unit_launch, unit(path), {}, {})
    assert str(caught.value).startswith("LoadCredential token: ")
    with pytest.raises(CredentialError):
        read_credentials([("token", str(path))])


def test_the_names_of_credentials() -> None:
    known = {"CREDENTIAL:hf-token.2": "x", "CREDENTIAL": "plain"}
    assert expand("${CREDENTIAL:hf-token.2}${CREDENTIAL:-d}${CREDENTIAL}", known) == "xplainplain"
    assert expand("${CREDENTIAL:lost:-none}", known) == "none"
    path = Path("/nowhere")
    assert undefined_variables(unit(path), frozenset()) == ()
    assert undefined_variables(unit(path, name="other"), frozenset()) == ("CREDENTIAL:token",)


def known(*values: str) -> Secrets:
    secrets = Secrets()
    for number, value in enumerate(values):
        secrets._remember(f"s{number}", f"/s{number}", value)
    return secrets


def test_however_often_one_is_rotated_the_others_stay_hidden() -> None:
    """The engine that has loaded the other one may run for months."""
    secrets = Secrets()
    secrets.remember([("token", "/kept")], {"CREDENTIAL:token": "kept-secret"})
    for number in range(200):
        secrets.remember([("token", "/rotated")], {"CREDENTIAL:token": f"secret-number-{number:03}"})
    assert secrets.redact("kept-secret, secret-number-199") == "[redacted token], [redacted token]"
    assert secrets.redact("secret-number-000") == "secret-number-000"  # bounded


@pytest.mark.parametrize(
    "values, text, shown",
    [
        (["abcdef"], "x abcdef y abcdef", "x [redacted s0] y [redacted s0]"),
        (["abc", "abcdef"], "abcdef abc", "[redacted s1] [redacted s0]"),
        (['a"b\\c'], json.dumps({"k": 'a"b\\c'}), '{"k": "[redacted s0]"}'),
        (["first-line\nshort\nother-line"], "first-line\nshort", "[redacted s0]\nshort"),
        ([], "abc", "abc"),
    ],
)
def test_what_is_hidden(values: list[str], text: str, shown: str) -> None:
    secrets = known(*values)
    assert secrets.redact(text) == shown
    assert secrets.redact_bytes(text.encode()) == shown.encode()


def test_reasons_are_cleaned() -> None:
    assert known("abcdef").redacted(NotReady("GET /?key=abcdef: 401")) == NotReady("GET /?key=[redacted s0]: 401")
    assert Secrets().redacted(NotReady("/tmp/\udcff: 1")) == NotReady("/tmp/\\udcff: 1")  # a file's name, say
    untouched = CriticalProcessDied("gone")
    assert known("abcdef").redacted(untouched) == untouched


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs_of_ours_are_cleaned(form: str) -> None:
    root, stream = logging.getLogger(), StringIO()
    before = root.handlers, root.level
    try:
        logs.configure("info", form, stream)
        with logs.redacted_by(known('abc"def').redact):
            logging.getLogger("test").info("it said %s", 'abc"def', extra={"key": 'abc"def'})
        logging.getLogger("test").info("over")
    finally:
        root.handlers, root.level = before
    assert "abc" not in stream.getvalue()
    assert "redacted s0" in stream.getvalue()
    assert "over" in stream.getvalue()


def test_the_digest_of_an_engine_does_not_know_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    declared = unit(path, engine=Engine())
    digests = set()
    for secret in ("one-secret", "another-secret", None):
        if secret is not None:
            path.write_text(secret)
        else:
            path.unlink()
        digests.add(config_digest(declared, {"MODEL": "m"}))
    assert len(digests) == 1
    changed = replace(declared, service=replace(declared.service, exec_start=Command(("serve", "${MODEL}"))))
    others = {config_digest(changed, {"MODEL": name}) for name in "ab"}
    assert len(others | digests) == 3  # what else is in the unit counts as ever
