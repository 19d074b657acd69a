"""supervisord.conf -> unit files (supervisord's documentation of its configuration file)."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.unit.expand import expand_unit
from supervisor.unit.model import KillMode, RestartPolicy, Unit
from tests.support.converted import argv, converted, remarks, units

OF_EVERY_FILE = 2
"""Remarks that any file with a program gets."""


def one(directory: Path, *lines: str) -> tuple[Unit, list[str]]:
    text = "\n".join(("[program:web]", *(lines if any("command" in line for line in lines) else ("command=x", *lines))))
    conversion = converted(directory, {"supervisord.conf": text})
    (unit,) = units(conversion).values()
    return unit, remarks(conversion)[OF_EVERY_FILE:]


@pytest.mark.parametrize(
    "command, expected",
    [
        ("/bin/x a  b", ["/bin/x", "a", "b"]),
        ("""/bin/x "a b" 'c"d' e\\ f""", ["/bin/x", "a b", 'c"d', "e f"]),
        ("/bin/x a ; comment", ["/bin/x", "a"]),
        ("/bin/x a;b a#b", ["/bin/x", "a;b", "a#b"]),
        ("/bin/x 100%% $HOME ${A} $$", ["/bin/x", "100%", "$HOME", "${A}", "$$"]),
        ("/bin/x --t=%(ENV_TOKEN)s $%(ENV_TOKEN)s", ["/bin/x", "--t=se cret", "$se cret"]),
        ("/bin/x %(program_name)s %(group_name)s %(numprocs)d %(process_num)02d", ["/bin/x", "web", "web", "1", "00"]),
        ("/bin/x %(host_node_name)s", ["/bin/x", "host-1"]),
        ("bash -c 'exec y \"$1\"'", ["bash", "-c", 'exec y "$1"']),
    ],
)
def test_commands(tmp_path: Path, command: str, expected: list[str]) -> None:
    unit, _ = one(tmp_path, f"command={command}")
    assert argv(unit, TOKEN="se cret", HOSTNAME="host-1") == expected


def test_here_and_lines_that_go_on(tmp_path: Path) -> None:
    unit, _ = one(tmp_path, "command=%(here)s/run", "  --one", "\t# no argument", "  --two", "directory=%(here)s/data")
    assert argv(unit) == [f"{tmp_path}/run", "--one", "--two"]
    assert unit.service.execution.working_directory == f"{tmp_path}/data"


def test_environment_with_what_supervisord_gives_to_all(tmp_path: Path) -> None:
    text = """
[supervisord]
environment=LANG="C",A="%(ENV_HOME)s/x",
umask=027
[program:web]
command=x
environment=
  A="mine, $1",  ; comment
  B='two',C=3,
  D="%(program_name)s"
"""
    (unit,) = units(converted(tmp_path, {"supervisord.conf": text})).values()
    expanded = expand_unit(unit, {"HOME": "/home/me"}).service.execution
    assert dict(expanded.environment) == {"LANG": "C", "A": "mine, $1", "B": "two", "C": "3", "D": "web"}
    assert expanded.umask == 0o27


def test_every_key_of_a_program(tmp_path: Path) -> None:
    unit, said = one(
        tmp_path, "user=www-data", "directory=/srv", "umask=022", "stopsignal=QUIT", "stopwaitsecs=3600",
        "stopasgroup=true", "killasgroup=true", "autorestart=true", "startretries=5", "startsecs=10",
        "redirect_stderr=true", "stdout_logfile=/var/log/web.log", "stdout_logfile_maxbytes=1MB",
        "stdout_logfile_backups=3", "stderr_logfile=/ignored", "stdout_events_enabled=true", "stdout_syslog=1",
        "stdout_capture_maxbytes=1MB", "serverurl=http://x", "autostart=yes", "speed=fast", "stderr_events_enabled=no",
    )  # fmt: skip
    service = unit.service
    assert (service.execution.user, service.execution.working_directory, service.execution.umask) == (
        "www-data", "/srv", 0o22,
    )  # fmt: skip
    assert (service.stop.kill_signal, service.stop.timeout_sec, service.stop.kill_mode) == (
        "SIGQUIT", 3600, KillMode.CONTROL_GROUP,
    )  # fmt: skip
    assert (service.restart.policy, service.restart.limit_burst, service.restart.limit_interval_sec) == (
        RestartPolicy.ALWAYS, 6, 75,
    )  # fmt: skip
    assert (service.logging.stdout, service.logging.stderr) == ("file:/var/log/web.log", None)
    assert (service.logging.rotate_size, service.logging.rotate_keep) == (1024**2, 3)
    lost = [line.split(": ")[0] for line in said if ": lost: " in line]
    assert sorted(lost) == [
        "supervisord.conf:12 program:web.startsecs",
        "supervisord.conf:18 program:web.stdout_events_enabled",
        "supervisord.conf:19 program:web.stdout_syslog",
        "supervisord.conf:20 program:web.stdout_capture_maxbytes",
        "supervisord.conf:21 program:web.serverurl",
        "supervisord.conf:23 program:web.speed",
    ]


@pytest.mark.parametrize(
    "lines, policy, success, forced",
    [
        ((), RestartPolicy.ON_FAILURE, (0,), ()),
        (("autorestart=false",), RestartPolicy.NO, (0,), ()),
        (("autorestart=unexpected",), RestartPolicy.ON_FAILURE, (0,), ("SIGHUP", "SIGINT", "SIGTERM", "SIGPIPE")),
        (("autorestart=unexpected", "exitcodes=2,3"), RestartPolicy.ON_FAILURE, (0, 2, 3),
         (0, "SIGHUP", "SIGINT", "SIGTERM", "SIGPIPE")),
    ],
)  # fmt: skip
def test_restart(
    tmp_path: Path,
    lines: tuple[str, ...],
    policy: RestartPolicy,
    success: tuple[int, ...],
    forced: tuple[int | str, ...],
) -> None:
    unit, _ = one(tmp_path, *lines)
    restart = unit.service.restart
    assert (restart.policy, restart.success_exit_status, restart.force_exit_status) == (policy, success, forced)


@pytest.mark.parametrize(
    "lines, burst, interval",
    [
        (("autorestart=true",), 4, 10),
        (("autorestart=true", "startretries=0"), 1, 1),
        (("autorestart=true", "startsecs=0", "startretries=3"), 0, None),
        (("startretries=3", "startsecs=2"), 4, 14),
        (("autorestart=false",), 5, None),
    ],
)
def test_a_start_limit_for_starts_that_are_over_at_once(
    tmp_path: Path, lines: tuple[str, ...], burst: int, interval: float | None
) -> None:
    """A program that lives longer than startsecs is restarted without end, as supervisord does it."""
    unit, _ = one(tmp_path, *lines)
    assert (unit.service.restart.limit_burst, unit.service.restart.limit_interval_sec) == (burst, interval)


@pytest.mark.parametrize(
    "lines, stdout, stderr",
    [
        ((), None, None),
        (("stdout_logfile=AUTO",), None, None),
        (("stdout_logfile=NONE",), "null", "prefix"),
        (("stdout_logfile=/dev/stdout", "stdout_logfile_maxbytes=0"), "pass", "prefix"),
        (("stdout_logfile=/dev/fd/1", "redirect_stderr=true"), "pass", None),
        (("stdout_logfile=/proc/1/fd/1",), "pass", "prefix"),
        (("stdout_logfile=/dev/stdout", "stderr_logfile=/dev/stderr"), "pass", "pass"),
        (("stdout_logfile=/a", "stderr_logfile=/b"), "file:/a", "file:/b"),
        (("stderr_logfile=/b",), None, "file:/b"),
    ],
)
def test_output(tmp_path: Path, lines: tuple[str, ...], stdout: str | None, stderr: str | None) -> None:
    unit, _ = one(tmp_path, *lines)
    assert (unit.service.logging.stdout, unit.service.logging.stderr) == (stdout, stderr)


def test_several_processes_are_a_template_and_its_instances(tmp_path: Path) -> None:
    text = """[program:worker]
process_name=%(program_name)s_%(process_num)02d
command=work --port=80%(process_num)02d -%%(i)
numprocs=3
numprocs_start=8
stdout_logfile=/var/log/worker.log
environment=N="%(process_num)02d"
""".replace("-%%(i)", "100%%i")
    conversion = converted(tmp_path, {"supervisord.conf": text})
    assert [each.name for each in conversion.files] == [
        "worker@.toml", "worker@08.toml", "worker@09.toml", "worker@10.toml",
    ]  # fmt: skip
    found = units(conversion)
    assert argv(found["worker@09"]) == ["work", "--port=8009", "100%i"]
    assert found["worker@10"].service.logging.stdout == "file:/var/log/worker-10.log"
    assert dict(found["worker@08"].service.execution.environment) == {"N": "08"}


def test_processes_that_write_their_number_in_two_ways_are_units_of_their_own(tmp_path: Path) -> None:
    text = "[program:w]\ncommand=w %(process_num)d %(process_num)03d\nprocess_name=w%(process_num)d\nnumprocs=2\n"
    found = units(converted(tmp_path, {"supervisord.conf": text}))
    assert {name: argv(unit) for name, unit in found.items()} == {"w-0": ["w", "0", "000"], "w-1": ["w", "1", "001"]}


def test_priorities_become_an_order(tmp_path: Path) -> None:
    text = """[program:c]
command=c
[program:a]
command=a
priority=1
[program:b]
command=b
priority=5
numprocs=2
process_name=b%(process_num)d
[program:never]
command=n
priority=3
autostart=false
"""
    conversion = converted(tmp_path, {"supervisord.conf": text})
    found = units(conversion)
    assert {name: unit.dependencies.after for name, unit in found.items()} == {
        "a": (), "b@0": ("a",), "b@1": ("a",), "c": ("b@0", "b@1"), "never": (),
    }  # fmt: skip
    assert [each.name for each in conversion.files if each.name.endswith(".off")] == ["never.toml.off"]


def test_what_is_no_program_is_said(tmp_path: Path) -> None:
    text = """[unix_http_server]
file=/run/x.sock
[supervisord]
nodaemon=true
user=root
odd=1
[supervisorctl]
serverurl=unix:///run/x.sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=x
[program:web]
command=x
[group:all]
programs=web
[eventlistener:mail]
command=mail
[fcgi-program:php]
command=php
socket=tcp://:9000
[surprise]
a=b
"""
    conversion = converted(tmp_path, {"supervisord.conf": text})
    assert [each.name for each in conversion.files] == ["web.toml"]
    assert [line.split(": lost: ")[0] for line in remarks(conversion) if ": lost: " in line] == [
        "supervisord.conf:1 unix_http_server", "supervisord.conf:4 supervisord.nodaemon",
        "supervisord.conf:5 supervisord.user", "supervisord.conf:6 supervisord.odd",
        "supervisord.conf:7 supervisorctl", "supervisord.conf:9 rpcinterface:supervisor",
        "supervisord.conf:13 group:all", "supervisord.conf:15 eventlistener:mail",
        "supervisord.conf:17 fcgi-program:php", "supervisord.conf:20 surprise",
    ]  # fmt: skip
    assert "supervisord's event protocol" in str(conversion.remarks)


def test_the_group_is_known_in_its_programs(tmp_path: Path) -> None:
    text = "[group:g]\nprograms=web,other\n[program:web]\ncommand=x %(group_name)s\n"
    (unit,) = units(converted(tmp_path, {"supervisord.conf": text})).values()
    assert argv(unit) == ["x", "g"]


def test_includes_are_read_and_lines_are_told_by_their_file(tmp_path: Path) -> None:
    files = {
        "supervisord.conf": "[include]\nfiles = conf.d/*.conf %(here)s/more.ini\n[program:a]\ncommand=a\n",
        "conf.d/one.conf": "[program:one]\ncommand=%(here)s/one\nspeed=1\n",
        "conf.d/two.conf": "[program:a]\npriority=5\n",
        "more.ini": "[program:more]\ncommand=more\n",
    }
    conversion = converted(tmp_path, files)
    found = units(conversion)
    assert set(found) == {"a", "one", "more"}
    assert argv(found["one"]) == [f"{tmp_path}/one"]
    assert "one.conf:3 program:one.speed: lost: supervisord knows no such key" in remarks(conversion)
    assert found["one"].dependencies.after == ("a",)


@pytest.mark.parametrize(
    "line, why",
    [
        ("command=x %d", "a % that begins no expansion"),
        ("command=x %(nobody)s", "%(nobody)s is not known here"),
        ("command=x %(ENV_A)d", "%(ENV_A)d cannot be written as ${A}"),
        ("command=x %(program_name)d", "does not fit 'web'"),
        ("command=x 'open", "No closing quotation; supervisord cannot read it either"),
        ("command=-x", "a program whose name begins with -"),
        ("environment=A", 'expected NAME="value"'),
        ("environment=A=1 B=2", 'expected NAME="value"'),
        ("environment=A-B=1", "'A-B' is no name for a variable"),
        ("autostart=maybe", "found 'maybe', expected true or false"),
        ("startretries=lots", "found 'lots', expected a whole number"),
        ("exitcodes=a\nautorestart=unexpected", "exitcodes: found 'a'"),
        ("stopsignal=NONE", "KillSignal of ours"),
        ("umask=999", "UMask of ours"),
        ("stdout_logfile=/a\nstdout_logfile_maxbytes=0", "log files are always rotated"),
        ("stdout_logfile=/a\nstdout_logfile_maxbytes=1TB", "found '1tb'"),
        ("stdout_logfile=/a\nstderr_logfile=/b\nstderr_logfile_backups=9", "rotated by the same LogRotateSize"),
        ("numprocs=0", "numprocs: found 0, expected 1 to 1000"),
        ("numprocs=%(ENV_N)s", "numprocs: found '%(ENV_N)s', expected a whole number"),
        ("priority=high", "found 'high', expected a number"),
        ("user=", "expected a name or a number"),
    ],
)
def test_values_that_cannot_be_carried_over(tmp_path: Path, line: str, why: str) -> None:
    text = "[program:web]\n" + (line if line.startswith("command") else f"command=x\n{line}")
    conversion = converted(tmp_path, {"supervisord.conf": text})
    units(conversion)
    assert [each for each in remarks(conversion) if why in each], remarks(conversion)


def test_a_name_that_a_unit_may_not_have(tmp_path: Path) -> None:
    conversion = converted(tmp_path, {"supervisord.conf": "[program:my web/app]\ncommand=x\n"})
    assert [each.name for each in conversion.files] == ["my-web-app.toml"]
    assert "characters that a unit's may not" in remarks(conversion)[-1]


def test_two_units_of_one_name(tmp_path: Path) -> None:
    files = {"a.conf": "[program:web]\ncommand=a\n", "web.service": "[Service]\nExecStart=/bin/b\n"}
    conversion = converted(tmp_path, files, *files)
    assert [each.name for each in conversion.files] == ["web.toml"]
    assert "there is a unit 'web' already" in remarks(conversion)[-1]
