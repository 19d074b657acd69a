"""systemd .service files -> unit files (systemd.syntax(7), systemd.service(5), systemd.unit(5), systemd.exec(5))."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.unit.expand import expand_unit
from supervisor.unit.graph import Graph
from supervisor.unit.model import Command, ExitType, KillMode, NotifyAccess, RestartPolicy, ServiceType, Unit
from tests.support.converted import argv, converted, remarks, units


def one(directory: Path, text: str, name: str = "web.service") -> tuple[Unit, list[str]]:
    conversion = converted(directory, {name: text})
    (unit,) = units(conversion).values()
    return unit, remarks(conversion)


def service(*lines: str) -> str:
    return "\n".join(("[Service]", "ExecStart=/bin/x", *lines))


@pytest.mark.parametrize(
    "line, expected",
    [
        ("/bin/x a  b\tc", ["/bin/x", "a", "b", "c"]),
        ("""/bin/x "a b" 'c d' e""", ["/bin/x", "a b", "c d", "e"]),
        ("""/bin/x --name="a b"c""", ["/bin/x", "--name=a bc"]),
        ("""/bin/x "" ''""", ["/bin/x", "", ""]),
        (r"""/bin/x "a\"b" 'a\'b' a\sb a\tb""", ["/bin/x", 'a"b', "a'b", "a b", "a\tb"]),
        (r"/bin/x \x41\102\u00e9\U0001f600", ["/bin/x", "AB\u00e9\U0001f600"]),
        (r"/bin/x a\qb \\d", ["/bin/x", r"a\qb", r"\d"]),
        (r"/bin/x a\;b \; c", ["/bin/x", r"a\;b", ";", "c"]),
        (r"""/bin/x "\;" "\\;" \\; ';'""", ["/bin/x", r"\;", r"\;", r"\;", ";"]),
        ("/bin/x $$HOME a$$b a$b $", ["/bin/x", "$HOME", "a$b", "a$b", "$"]),
        ("/bin/x ${A} ${A}${B} p${A}s ${NONE}", ["/bin/x", "1", "12", "p1s", ""]),
        ("/bin/x $${A} '${A}' \"$${A}\"", ["/bin/x", "${A}", "1", "${A}"]),
        (":/bin/x ${A} $A $$", ["/bin/x", "${A}", "$A", "$$"]),
        ("@/bin/x other a", ["/bin/x", "a"]),
        ("+/bin/x a", ["/bin/x", "a"]),
        ("!!/bin/x a", ["/bin/x", "a"]),
        ("/bin/x %% %n %N %p %h %t %u %i|", ["/bin/x", "%", "web.service", "web", "web", "/root", "/run", "root", "|"]),
        ("/bin/x %H", ["/bin/x", "host-1"]),
    ],
)
def test_command_lines(tmp_path: Path, line: str, expected: list[str]) -> None:
    unit, _ = one(tmp_path, f"[Service]\nExecStart={line}\n")
    assert argv(unit, A="1", B="2", HOSTNAME="host-1") == expected


def test_a_failure_that_may_be_ignored_and_several_commands_on_a_line(tmp_path: Path) -> None:
    unit, _ = one(tmp_path, service("ExecStartPre=-/bin/a 1 ; /bin/b 2", "ExecStartPre=/bin/c"))
    assert unit.service.exec_start_pre == (
        Command(("/bin/a", "1"), ignore_failure=True), Command(("/bin/b", "2")), Command(("/bin/c",)),
    )  # fmt: skip


def test_lines_are_continued_and_comments_between_them_vanish(tmp_path: Path) -> None:
    text = "[Service]\nExecStart=/bin/x \\\n  # comment \\\n  one \\\n; other\n  two\nNice=5\n"
    unit, _ = one(tmp_path, text)
    assert argv(unit) == ["/bin/x", "one", "two"]
    assert unit.service.execution.nice == 5


def test_an_empty_assignment_takes_back_what_was_before(tmp_path: Path) -> None:
    text = service("Environment=A=1", "Environment=", "Environment=B=2", "ExecStart=", "ExecStart=/bin/y",
                   "ExecStartPre=/bin/p", "ExecStartPre=")  # fmt: skip
    unit, _ = one(tmp_path, text)
    assert argv(unit) == ["/bin/y"]
    assert unit.service.execution.environment == (("B", "2"),)
    assert unit.service.exec_start_pre == ()


def test_environment_is_quoted_by_word_and_its_dollars_mean_nothing(tmp_path: Path) -> None:
    text = service("""Environment="A=b c" 'D=e"f' G=${H}$$ "I=%n\\x20x" A=last""", "Environment=bad 1x=2")
    unit, said = one(tmp_path, text)
    expanded = expand_unit(unit, {}).service.execution.environment
    assert dict(expanded) == {"D": 'e"f', "G": "${H}$$", "I": "web.service x", "A": "last"}
    assert [line for line in said if "NAME=value" in line] == [
        "web.service:4 Service.Environment: lost: 'bad' is not NAME=value",
        "web.service:4 Service.Environment: lost: '1x=2' is not NAME=value",
    ]


@pytest.mark.parametrize(
    "written, taken, why",
    [
        (r"A=1 B=a\qb C=3", {"A": "1"}, r"\q is no escape"),
        (r"A=\%n", {}, r"\% is no escape"),
        (r"A=\\%n B=2", {"A": r"\web.service", "B": "2"}, ""),
        ("A=1 'B=2", {"A": "1"}, "the quote ' is never closed"),
    ],
)
def test_of_an_environment_line_that_is_wrong_counts_what_came_before(
    tmp_path: Path, written: str, taken: dict[str, str], why: str
) -> None:
    """As systemd 252 does it; in a command line it keeps an escape that it does not know."""
    unit, said = one(tmp_path, service(f"Environment={written}"))
    assert dict(unit.service.execution.environment) == taken
    assert [line for line in said if why and why in line] or not why


def test_a_variable_that_stands_alone_is_cut(tmp_path: Path) -> None:
    known = "[Service]\nEnvironment=\"OPTS=-a 'b c' -d\"\nExecStart=/bin/x $OPTS $NONE end\n"
    unit, _ = one(tmp_path, known)
    assert argv(unit) == ["/bin/x", "-a", "b c", "-d", "end"]
    unit, said = one(tmp_path, "[Service]\nEnvironmentFile=-/etc/default/x\nExecStart=/bin/x 1 $OPTS '${A}'\n")
    assert unit.service.execution.environment_files == ("-/etc/default/x",)
    assert argv(unit, A="a b") == ["/bin/sh", "-c", 'set -f; exec "$0" "$1" $OPTS "$2"', "/bin/x", "1", "a b"]
    assert any("ExecStart: changed: $OPTS: a shell cuts" in line for line in said)


def test_a_oneshot_with_several_commands(tmp_path: Path) -> None:
    text = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/a\nExecStart=/bin/b ; /bin/c\n"
    unit, _ = one(tmp_path, text)
    assert unit.service.type is ServiceType.ONESHOT
    assert unit.service.remain_after_exit
    assert [command.argv for command in unit.service.exec_start_pre] == [("/bin/a",), ("/bin/b",)]
    assert argv(unit) == ["/bin/c"]


@pytest.mark.parametrize(
    "written, ours, exit_type, said",
    [
        ("simple", ServiceType.EXEC, ExitType.MAIN, None),
        ("exec", ServiceType.EXEC, ExitType.MAIN, None),
        ("notify", ServiceType.NOTIFY, ExitType.MAIN, None),
        ("notify-reload", ServiceType.NOTIFY, ExitType.MAIN, "changed: there is no reload of a unit"),
        ("idle", ServiceType.EXEC, ExitType.MAIN, "changed: it does not wait until other jobs are done"),
        ("dbus", ServiceType.EXEC, ExitType.MAIN, "changed: there is no D-Bus"),
        ("forking", ServiceType.EXEC, ExitType.CGROUP, "changed: the unit lives as long as any process of it"),
        ("wrong", ServiceType.EXEC, ExitType.MAIN, "lost: there is no Type 'wrong'"),
    ],
)
def test_types(tmp_path: Path, written: str, ours: ServiceType, exit_type: ExitType, said: str | None) -> None:
    unit, lines = one(tmp_path, service(f"Type={written}"))
    assert (unit.service.type, unit.service.exit_type) == (ours, exit_type)
    assert [line for line in lines if f"web.service:3 Service.Type: {said}" in line] or said is None


def test_defaults_that_differ_are_written_down(tmp_path: Path) -> None:
    unit, _ = one(tmp_path, service())
    assert unit.service.restart.policy is RestartPolicy.NO
    assert unit.service.stop.kill_mode is KillMode.CONTROL_GROUP
    unit, _ = one(tmp_path, service("Restart=always", "RestartSec=5"))
    assert (unit.service.restart.limit_burst, unit.service.restart.limit_interval_sec) == (5, 10)
    assert (unit.service.restart.delay_sec, unit.service.restart.max_delay_sec) == (5, 5)


@pytest.mark.parametrize(
    "written, access", [("main", NotifyAccess.MAIN), ("exec", NotifyAccess.MAIN), ("all", NotifyAccess.ALL)]
)
def test_who_is_listened_to(tmp_path: Path, written: str, access: NotifyAccess) -> None:
    unit, _ = one(tmp_path, service("Type=notify", f"NotifyAccess={written}"))
    assert (unit.service.type, unit.service.notify_access) == (ServiceType.NOTIFY, access)


def test_plain_keys(tmp_path: Path) -> None:
    unit, said = one(tmp_path, service(
        "Restart=on-abnormal", "RestartSec=1min 30s", "TimeoutSec=0", "KillMode=mixed", "KillSignal=SIGINT",
        "SendSIGKILL=no", "WatchdogSec=0", "SuccessExitStatus=143 SIGUSR1 TEMPFAIL", "User=www", "Group=www",
        "SupplementaryGroups=a b", "UMask=0027", "PassEnvironment=A B", "LimitNOFILE=1024:4096", "LimitCORE=infinity",
        "Nice=-5", "OOMScoreAdjust=-100", "CPUAffinity=0 1", "CPUAffinity=3-5", "IOSchedulingClass=3",
        "WorkingDirectory=-/srv/%N", "StandardOutput=append:/var/log/%p.log", "StandardError=journal",
        "StartLimitInterval=2min", "StartLimitBurst=9",
    ))  # fmt: skip
    service_, execution = unit.service, unit.service.execution
    assert (service_.restart.policy, service_.restart.delay_sec) == (RestartPolicy.ON_ABNORMAL, 90)
    assert (service_.start.timeout_sec, service_.stop.timeout_sec) == (float("inf"), float("inf"))
    assert (service_.stop.kill_mode, service_.stop.kill_signal, service_.stop.send_sigkill) == (
        "mixed",
        "SIGINT",
        False,
    )
    assert service_.watchdog_sec is None
    assert service_.restart.success_exit_status == (0, 143, "SIGUSR1", 75)
    assert (execution.user, execution.group, execution.supplementary_groups) == ("www", "www", ("a", "b"))
    assert (execution.umask, execution.pass_environment) == (0o27, ("A", "B"))
    assert {(limit.name, limit.soft, limit.hard) for limit in execution.limits} == {
        ("NOFILE", 1024, 4096), ("CORE", float("inf"), float("inf")),
    }  # fmt: skip
    assert (execution.nice, execution.oom_score_adjust, execution.cpu_affinity) == (
        -5,
        -100,
        frozenset({0, 1, 3, 4, 5}),
    )
    assert (execution.io_scheduling_class, execution.working_directory) == ("idle", "/srv/web")
    assert (service_.logging.stdout, service_.logging.stderr) == ("file:/var/log/web.log", "prefix")
    assert (service_.restart.limit_interval_sec, service_.restart.limit_burst) == (120, 9)
    assert not [line for line in said if ": lost: " in line]


@pytest.mark.parametrize(
    "line, why",
    [
        ("PrivateTmp=yes", "Service.PrivateTmp: lost: a unit runs in the container's sandbox"),
        ("ProtectSystem=strict", "lost: a unit runs in the container's sandbox"),
        ("MemoryMax=1G", "Service.MemoryMax: lost: limits of cpu, memory and tasks are the pod's"),
        ("ExecReload=/bin/kill -HUP $MAINPID", "Service.ExecReload: lost: there is no reload"),
        ("ExecStop=/bin/kill $MAINPID", "Service.ExecStop: lost: MAINPID is not told to commands"),
        ("PIDFile=/run/x.pid", "Service.PIDFile: lost: processes are known"),
        ("RuntimeDirectory=x", "Service.RuntimeDirectory: lost: no directory is made"),
        ("KillMode=none", "Service.KillMode: lost: a unit that was stopped is always gone"),
        ("NotifyAccess=none", "Service.NotifyAccess: lost: who is given a NOTIFY_SOCKET is listened to"),
        ("StartLimitAction=reboot", "lost: a unit may end the supervisor (exit), never the machine"),
        ("EnvironmentFile=/etc/x/*.env", "lost: a file is named, not a pattern"),
        ("WorkingDirectory=~", "lost: the user's home is not known here"),
        ("StandardOutput=socket", "lost: there is no socket to write to"),
        ("Nice=lots", "lost: found 'lots', expected a whole number"),
        ("Nice=99", "Service.Nice: lost: Service.Nice of ours: found 99, expected a whole number from -20 to 19"),
        ("KillSignal=SIGNONE", "lost: Service.KillSignal of ours: found \"SIGNONE\", expected a signal"),
        ("TimeoutStopSec=soon", "lost: found 'soon', expected a time"),
        ("RemainAfterExit=yes", 'lost: Service.RemainAfterExit of ours: only a unit of Type "oneshot"'),
        ("SomethingNew=1", "Service.SomethingNew: lost: not known to `podvisor convert`"),
        ("ExecStartPost=/bin/x %z", "Service.ExecStartPost: lost: there is no specifier %z"),
        ("ExecStartPost=/bin/x 'a", "Service.ExecStartPost: lost: the quote ' is never closed"),
        (r"ExecStartPost=/bin/x a\x00b", r"lost: \x00 is no character that an argument may hold"),
        ("[Install]\nWantedBy=multi-user.target", "web.service:4 Install.WantedBy: lost: every unit in a directory"),
        ("[Unit]\nConditionACPower=yes", "web.service:4 Unit.ConditionACPower: lost: only ConditionPathExists"),
        ("[Unit]\nOnFailure=mail.service", "Unit.OnFailure: lost: only StartLimitAction"),
        ("[Timer]\nOnCalendar=daily", "Timer.OnCalendar: lost: not known"),
    ],
)  # fmt: skip
def test_what_is_lost_is_said_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    unit, said = one(tmp_path, service(line))
    assert argv(unit) == ["/bin/x"]
    assert [each for each in said if why in each], said
    assert all(each.startswith("web.service:") for each in said)


def test_extensions_of_others_are_none_of_our_business(tmp_path: Path) -> None:
    _, said = one(tmp_path, service("X-Own=1", "[X-Other]\nKey=2"))
    assert said == []


def test_a_specifier_that_is_not_known_here_stops_the_start_with_its_name(tmp_path: Path) -> None:
    unit, _ = one(tmp_path, "[Service]\nExecStart=/bin/x --machine=%m\n")
    assert argv(unit, SYSTEMD_MACHINE_ID="abc") == ["/bin/x", "--machine=abc"]
    with pytest.raises(Exception, match="%m of systemd is not known here: set SYSTEMD_MACHINE_ID"):
        argv(unit)


def test_dependencies_on_what_is_there(tmp_path: Path) -> None:
    files = {
        "web.service": "[Unit]\nAfter=db.service network.target gone.service\nRequires=db.service gone.service\n"
                       "Requisite=cache@1.service\nConditionPathExists=!/etc/off\n[Service]\nExecStart=/bin/w\n",
        "db.service": "[Service]\nExecStart=/bin/d\n",
        "cache@.service": "[Unit]\nAfter=db.service queue@%i.service\n[Service]\nExecStart=/bin/c %i 100%%i\n",
        "queue@.service": "[Service]\nExecStart=/bin/q %I\n",
    }  # fmt: skip
    conversion = converted(tmp_path, files, *files)
    found = units(conversion)
    assert found["web"].dependencies.after == ("db",)
    assert found["web"].dependencies.requires == ("db", "cache@1")
    assert found["web"].conditions.path_exists == ("!/etc/off",)
    assert found["cache@1"].dependencies.after == ("db", "queue@1")
    assert argv(found["cache@1"]) == ["/bin/c", "1", "100%i"]
    said = remarks(conversion)
    assert "web.service:2 Unit.After: lost: network.target: there are only services here" in said
    assert any(line.startswith("web.service:3 Unit.Requires: lost: gone.service is no unit here") for line in said)


def test_drop_ins_are_laid_over_in_the_order_of_their_names(tmp_path: Path) -> None:
    files = {
        "web.service": service("Nice=1", "Environment=A=1"),
        "web.service.d/20-b.conf": "[Service]\nNice=3\nExecStart=\nExecStart=/bin/late\n",
        "web.service.d/10-a.conf": "[Service]\nNice=2\nEnvironment=B=2\nPrivateTmp=yes\n",
        "web.service.d/readme": "not a drop-in",
    }
    conversion = converted(tmp_path, files)
    (unit,) = units(conversion).values()
    assert argv(unit) == ["/bin/late"]
    assert unit.service.execution.nice == 3
    assert dict(unit.service.execution.environment) == {"A": "1", "B": "2"}
    assert [line for line in remarks(conversion) if line.startswith("10-a.conf:4 Service.PrivateTmp: lost")]


def test_an_instance_has_its_name_filled_in(tmp_path: Path) -> None:
    unit, _ = one(tmp_path, "[Service]\nExecStart=/bin/x %i %n %p\n", "web@blue.service")
    assert unit.name == "web@blue"
    assert argv(unit) == ["/bin/x", "blue", "web@blue.service", "web"]


def test_without_a_command_there_is_no_unit(tmp_path: Path) -> None:
    conversion = converted(tmp_path, {"web.service": "[Service]\nRestart=always\n"})
    assert conversion.files == ()
    assert "this is no unit here: the key ExecStart is missing" in remarks(conversion)[-1]


def test_what_is_found_on_many_machines(tmp_path: Path) -> None:
    """A daemon that forks, a web application beside its proxy, a job for the start: as they are usually written."""
    files = {
        "proxy.service": """[Unit]
Description=A web proxy
Documentation=man:proxy(8) https://example.org/proxy
After=network-online.target remote-fs.target
Wants=network-online.target

[Service]
Type=forking
PIDFile=/run/proxy.pid
ExecStartPre=/usr/sbin/proxy -t -c /etc/proxy.conf
ExecStart=/usr/sbin/proxy -c /etc/proxy.conf
ExecReload=/bin/kill -s HUP $MAINPID
ExecStop=/bin/kill -s QUIT $MAINPID
KillMode=mixed
TimeoutStopSec=5
PrivateTmp=true

[Install]
WantedBy=multi-user.target
""",
        "app.service": """[Unit]
Description=App server
Requires=proxy.service
After=proxy.service
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
User=app
Group=app
WorkingDirectory=/srv/app
EnvironmentFile=/etc/app.env
ExecStart=/srv/app/venv/bin/app \\
    --workers 3 \\
    --bind 127.0.0.1:8000 \\
    "app.main:create()"
Restart=always
RestartSec=10
LimitNOFILE=65536
NoNewPrivileges=true
AmbientCapabilities=CAP_NET_BIND_SERVICE
MemoryMax=2G
SyslogIdentifier=app
ReadWriteDirectories=/srv/app

[Install]
WantedBy=multi-user.target
""",
        "migrate.service": """[Unit]
Before=app.service
ConditionPathExists=/srv/app/migrations

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/srv/app/venv/bin/app migrate
""",
    }
    conversion = converted(tmp_path, files, *files)
    found = units(conversion)
    proxy, app, migrate = found["proxy"], found["app"], found["migrate"]
    assert (proxy.service.exit_type, proxy.service.stop.kill_mode, proxy.service.exec_stop) == ("cgroup", "mixed", ())
    assert proxy.documentation == ("man:proxy(8)", "https://example.org/proxy")
    assert argv(app)[1:] == ["--workers", "3", "--bind", "127.0.0.1:8000", "app.main:create()"]
    assert (app.service.type, app.service.restart.limit_interval_sec) == (ServiceType.NOTIFY, 300)
    assert (app.dependencies.requires, migrate.dependencies.before) == (("proxy",), ("app",))
    assert not [line for line in remarks(conversion) if "not known to `podvisor convert`" in line]


def test_what_is_no_unit_after_all_is_required_by_nobody(tmp_path: Path) -> None:
    files = {
        "web.service": "[Unit]\nRequires=db.service\nAfter=db.service\n[Service]\nExecStart=/bin/w\n",
        "db.service": "[Unit]\nRequires=disk.service\n[Service]\nExecStart='/bin/d\n",
        "disk.service": "[Service]\nExecStart=/bin/disk\n",
    }
    conversion = converted(tmp_path, files, *files)
    found = units(conversion)
    assert set(found) == {"web", "disk"}
    assert found["web"].dependencies.requires == found["web"].dependencies.after == ()
    assert any(
        line.startswith("web.service:2 Unit.Requires: lost: db.service is no unit") for line in remarks(conversion)
    )


def test_a_circle_is_cut(tmp_path: Path) -> None:
    files = {
        "a.service": "[Unit]\nAfter=b.service\nBefore=d.service\n[Service]\nExecStart=/bin/a\n",
        "b.service": "[Unit]\nAfter=c@1.service\n[Service]\nExecStart=/bin/b\n",
        "c@.service": "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/c\n",
        "d.service": "[Unit]\nBefore=a.service\n[Service]\nExecStart=/bin/d\n",
        "e.service": "[Unit]\nAfter=e.service d.service\n[Service]\nExecStart=/bin/e\n",
    }
    conversion = converted(tmp_path, files, *files)
    found = units(conversion, "1").values()
    assert Graph.of(found).cycle() == ()
    assert len([line for line in remarks(conversion) if "they would wait in a circle" in line]) == 3
