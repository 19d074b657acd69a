"""What stands in a unit's environment."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor.service.environment import EnvironmentFileError, account, parse_environment_file, read_environment_files
from supervisor.service.launch import LaunchError, unit_launch
from supervisor.unit.events import Commands
from supervisor.unit.model import Command, Engine, Execution, Service, Unit

SUPERVISORS = {
    "PATH": "/bin",
    "LC_ALL": "C.UTF-8",
    "POD_IP": "10.0.0.7",
    "HF_TOKEN": "secret",
    "CUDA_HOME": "/cuda",
}


def unit(engine: Engine | None = None, **execution: object) -> Unit:
    command = Command(("serve", "--port", "${PORT:-8000}"))
    service = Service(exec_start=command, execution=replace(Execution(), **execution))
    return Unit("web", Path("web.toml"), service=service, engine=engine)


def environment(declared: Unit, **placement: str) -> dict[str, str]:
    return dict(trio.run(unit_launch, declared, SUPERVISORS, placement).environment)


def test_an_exporter_sees_no_token_and_an_engine_inherits_all() -> None:
    assert environment(unit()) == {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "POD_IP": "10.0.0.7",
        "PODVISOR_UNIT": "web",
    }
    assert environment(unit(Engine()))["HF_TOKEN"] == "secret"


def test_pass_environment_names_what_is_passed_beside_the_allow_list() -> None:
    passed = environment(unit(pass_environment=("HF_TOKEN", "NOT_SET")))
    assert passed["HF_TOKEN"] == "secret"
    assert "NOT_SET" not in passed


def test_later_sources_win_and_unset_wins_over_all(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("B=file\nC=file\nD=file\n")
    declared = unit(
        environment=(("A", "unit"), ("B", "unit"), ("RANK", "unit ${RANK}")),
        environment_files=(str(file),),
        unset_environment=("D", "PATH"),
    )
    got = environment(declared, A="placement", RANK="3", EPOCH="7")
    assert (got["A"], got["B"], got["C"]) == ("unit", "file", "file")
    assert got["RANK"] == "unit 3"
    assert got["EPOCH"] == got["PODVISOR_EPOCH"] == "7"
    assert not {"D", "PATH"} & got.keys()


def test_the_placement_is_used_in_arguments_and_is_an_engine_s_epoch() -> None:
    for declared, epoch in ((unit(Engine()), 4), (unit(), None)):
        launch = trio.run(unit_launch, declared, SUPERVISORS, {"PORT": "9000", "EPOCH": "4"})
        assert (launch.argv, launch.epoch) == (("serve", "--port", "9000"), epoch)
        assert launch.commands[Commands.START_PRE] == ()


def test_a_variable_that_is_not_set_is_named() -> None:
    declared = Unit("web", Path("web.toml"), service=Service(exec_start=Command(("serve", "${MODEL_PATH}"))))
    with pytest.raises(LaunchError, match="MODEL_PATH"):
        trio.run(unit_launch, declared, SUPERVISORS, {})


def test_the_account_of_user_is_in_its_environment() -> None:
    me = pwd.getpwuid(os.getuid())
    expected = {"HOME": me.pw_dir, "LOGNAME": me.pw_name, "USER": me.pw_name, "SHELL": me.pw_shell}
    assert account(me.pw_name) == account(str(os.getuid())) == expected
    assert account("no-such-user") == account("4294967290") == {}
    assert environment(unit(user=me.pw_name))["LOGNAME"] == me.pw_name


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", {}),
        ("# comment\n; comment\n\n", {}),
        ("A=1\nB = 2 \n", {"A": "1", "B": "2"}),
        ("A=with blanks inside", {"A": "with blanks inside"}),
        ('A="quoted # not a comment"', {"A": "quoted # not a comment"}),
        ("A='it''s'", {"A": "its"}),
        ('A="say \\"hi\\""', {"A": 'say "hi"'}),
        ('A={"json": [1, 2]}', {"A": '{"json": [1, 2]}'}),
        ("A=one \\\ntwo\nB=3", {"A": "one two", "B": "3"}),
        ("A=", {"A": ""}),
        ("A=b=c", {"A": "b=c"}),
    ],
)
def test_environment_files_are_read_as_systemd_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_environment_file(text, "f") == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("A=1\nnonsense", "f:2: expected NAME=VALUE"),
        ("A=1 \\\n2\n9B=1", "f:3: expected NAME=VALUE"),
        ('A="open', "f:1: cannot read"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(EnvironmentFileError, match=message) as caught:
        parse_environment_file(text, "f")
    told = str(caught.value)
    assert not any(word in told for word in ("nonsense", "9B", "open")), "such files hold tokens"


def test_a_file_may_be_absent_only_when_it_says_so(tmp_path: Path) -> None:
    assert read_environment_files((f"-{tmp_path}/none",)) == {}
    with pytest.raises(EnvironmentFileError, match="no such file"):
        read_environment_files((f"{tmp_path}/none",))
