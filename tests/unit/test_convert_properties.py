"""Whatever is converted, our parser takes; and what would be executed stays what it was."""

from __future__ import annotations

import shlex
import string
import tempfile
import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.convert.references import INSTANCE, References
from supervisor.convert.supervisord_program import NOT_CARRIED_OVER, READ_ELSEWHERE
from supervisor.convert.toml_text import Value, document
from supervisor.unit.expand import expand
from supervisor.unit.layers import instantiate, layer
from supervisor.unit.toml_lines import Document
from tests.support.converted import argv, converted, units

patient = settings(deadline=None)
"""They read and write files, on machines that do other things too."""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=20)
TRICKY = st.text(st.sampled_from("$%{}i\"'\\ ;#-:@a1=,()s"), max_size=12)
ARGUMENT = st.one_of(TEXT, TRICKY)
ARGUMENTS = st.lists(ARGUMENT, max_size=5)
SYSTEMD_KEYS = st.sampled_from([
    "Type", "Restart", "RestartSec", "StartLimitIntervalSec", "StartLimitBurst", "TimeoutSec", "TimeoutStartSec",
    "KillMode", "KillSignal", "WatchdogSec", "RemainAfterExit", "ExitType", "SuccessExitStatus", "User", "UMask",
    "Environment", "EnvironmentFile", "PassEnvironment", "LimitNOFILE", "LimitWRONG", "Nice", "CPUAffinity",
    "IOSchedulingClass", "StandardOutput", "StandardError", "ExecStart", "ExecStartPre", "ExecStop", "LoadCredential",
    "RestartMaxDelaySec", "RestartSteps", "WorkingDirectory", "PrivateTmp", "LogRateLimitBurst",
])  # fmt: skip
UNIT_KEYS = st.sampled_from([
    "Description", "Documentation", "After", "Requires", "Requisite", "BindsTo", "PartOf", "Conflicts",
    "ConditionPathExists", "ConditionEnvironment", "StartLimitBurst",
])  # fmt: skip
PROGRAM_KEYS = st.sampled_from(sorted({
    *NOT_CARRIED_OVER, *READ_ELSEWHERE, "command", "directory", "umask", "user", "environment", "autostart",
    "autorestart", "exitcodes", "startsecs", "startretries", "stopsignal", "stopwaitsecs", "stopasgroup", "killasgroup",
    "redirect_stderr", "stdout_logfile", "stderr_logfile", "stdout_logfile_maxbytes", "stdout_logfile_backups",
    "stderr_logfile_maxbytes",
}))  # fmt: skip
VALUES = st.one_of(ARGUMENT, st.sampled_from([
    "always", "no", "true", "false", "unexpected", "oneshot", "notify", "forking", "5", "0", "-1", "2min", "infinity",
    "SIGTERM", "TERM", "a=b", "A=\"1\",B=2", "0,2", "1 2", "/bin/x $A ${B} %i", "x.service web@%i.service", "file:/a%i",
    "append:/x", "AUTO", "NONE", "/dev/stdout", "%(process_num)02d", "%(ENV_X)s", "x%(process_num)d", "1MB", "mixed",
    "none", "~", "1:2", "cgroup", "process", "2", "3",
]))  # fmt: skip


def quoted_for_systemd(argument: str) -> str:
    """systemd.syntax(7): in double quotes, with what has a meaning of its own escaped or doubled."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return '"' + "".join(f"\\x{ord(char):02x}" if ord(char) < 32 else char for char in escaped) + '"'


@patient
@given(ARGUMENTS)
def test_arguments_survive_from_systemd(arguments: list[str]) -> None:
    line = " ".join(["/bin/x", *map(quoted_for_systemd, arguments)])
    for name in ("web.service", "web@.service"):
        with tempfile.TemporaryDirectory() as directory:
            conversion = converted(Path(directory), {name: f"[Service]\nExecStart={line}\n"})
            (unit,) = units(conversion).values()
        assert argv(unit) == ["/bin/x", *arguments]


@patient
@given(
    st.lists(ARGUMENT.filter(lambda text: text == text.strip() and " ;" not in text and " #" not in text), max_size=5)
)
def test_arguments_survive_from_supervisord(arguments: list[str]) -> None:
    arguments = [argument for argument in arguments if not any(char.isspace() and char != " " for char in argument)]
    line = shlex.join(["/bin/x", *arguments]).replace("%", "%%")
    if " ;" in line or " #" in line:
        return  # a comment, whatever the quotes
    with tempfile.TemporaryDirectory() as directory:
        conversion = converted(Path(directory), {"a.conf": f"[program:web]\ncommand={line}\n"})
        (unit,) = units(conversion).values()
    assert argv(unit) == ["/bin/x", *arguments]


@patient
@given(
    st.lists(st.tuples(UNIT_KEYS, VALUES), max_size=4),
    st.lists(st.tuples(SYSTEMD_KEYS, VALUES), max_size=10),
    st.sampled_from(["web.service", "web@.service", "web@a.service", "x.service"]),
)
def test_whatever_a_service_says_our_parser_takes_what_comes_out(
    unit: list[tuple[str, str]], service: list[tuple[str, str]], name: str
) -> None:
    lines = ["[Unit]", *(f"{key}={value}" for key, value in unit)]
    lines += ["[Service]", "ExecStart=/bin/x", *(f"{key}={value}" for key, value in service)]
    files = {name: "\n".join(lines), "web@b.service": "[Service]\nExecStart=/bin/y\n"}
    with tempfile.TemporaryDirectory() as directory:
        units(converted(Path(directory), files, *files))


@patient
@given(st.lists(st.tuples(PROGRAM_KEYS, VALUES), max_size=10), st.lists(st.tuples(PROGRAM_KEYS, VALUES), max_size=3))
def test_whatever_a_program_says_our_parser_takes_what_comes_out(
    web: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    lines = ["[program:web]", "command=x", *(f"{key}={value}" for key, value in web)]
    lines += ["[program:other]", "command=y", *(f"{key}={value}" for key, value in other)]
    with tempfile.TemporaryDirectory() as directory:
        units(converted(Path(directory), {"a.conf": "\n".join(lines)}))


@patient
@given(st.lists(st.one_of(st.text(st.sampled_from("$%{i}a-"), max_size=6), st.sampled_from(["\1", "\2"])), max_size=6))
def test_literals_and_references_beside_each_other(pieces: list[str]) -> None:
    """\\1 stands for a variable, \\2 for the instance."""
    references = References()
    marks = {"\1": references.mark("${V}"), "\2": references.mark(INSTANCE)}
    text = "".join(marks.get(piece, piece) for piece in pieces)
    if any(before.endswith("%") for before in "".join(pieces).split("\2")[:-1]):
        return  # cannot be written, and is refused
    written = references.written(text, template=True)
    filled = instantiate(layer(Path("x"), Document({"key": written}, {})), "INSTANCE").data["key"]
    assert isinstance(filled, str)
    assert expand(filled, {"V": "VALUE"}) == "".join(pieces).replace("\1", "VALUE").replace("\2", "INSTANCE")


NAMES = st.text(st.sampled_from(string.ascii_letters + " .\"'\\é-_"), min_size=1, max_size=8)


@patient
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z]{1,5}", fullmatch=True),
        st.dictionaries(
            NAMES,
            st.one_of(
                st.text(st.characters(codec="utf-8")), st.booleans(), st.integers(-(2**53), 2**53), st.lists(st.text()),
                st.lists(st.lists(st.text(st.characters(codec="utf-8")))), st.dictionaries(NAMES, st.text(max_size=4)),
            ),
        ),
        max_size=3,
    ),
    st.lists(st.text()),
)  # fmt: skip
def test_what_we_write_is_toml_and_says_what_we_meant(tables: dict[str, dict[str, Value]], comments: list[str]) -> None:
    assert tomllib.loads(document(comments, tables)) == tables
