"""`${VAR}` and its relatives."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit.expand import VERBATIM, ExpansionError, expand, expand_unit, undefined_variables
from supervisor.unit.model import (
    Command,
    Dependencies,
    Engine,
    ExecCheck,
    Execution,
    HttpCheck,
    KillMode,
    LogLineCheck,
    Probe,
    Probes,
    Repeat,
    Service,
    StopSettings,
    Unit,
)

VARIABLES = {"A": "x", "B": "$A ${A}", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${A}", "x"),
        ("<${A}${A}>", "<xx>"),
        ("${B}", "$A ${A}"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${A:-d}", "x"),
        ("${A:?m}", "x"),
        ("${C:-}", ""),
        ("${C:-a:-b c}", "a:-b c"),
        ("${C:-${A}}", "x"),
        ("${C:-{${D:-{}}}}", "{{}}"),
        ("${C:-$$}", "$"),
        ("$$", "$"),
        ("$$$$", "$$"),
        ("$${A}", "${A}"),
        ("$A $ $1 ^a$", "$A $ $1 ^a$"),
        ("$$$A", "$$A"),
    ],
)
def test_expands(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("${C}", "C", "C: ${C} is not set and has no default"),
        ("${C:?where is it?}", "C", "C: where is it?"),
        ("${C:?}", "C", "C: ${C} is not set and has no default"),
        ("${EMPTY:?must not be empty}", "EMPTY", "EMPTY: must not be empty"),
        ("${C:-${D}}", "D", "D: ${D} is not set and has no default"),
        ("a ${A", "", "'${A' has no closing brace; a plain dollar before a brace is $${"),
        ("${}", "", "cannot read ${}: expected ${NAME}, ${NAME:-default} or ${NAME:?message}"),
        ("${A-b}", "", "cannot read ${A-b}: expected ${NAME}, ${NAME:-default} or ${NAME:?message}"),
        ("${1}", "", "cannot read ${1}: expected ${NAME}, ${NAME:-default} or ${NAME:?message}"),
    ],
)
def test_says_what_is_missing(text: str, name: str, message: str) -> None:
    with pytest.raises(ExpansionError) as caught:
        expand(text, VARIABLES)
    assert caught.value.name == name
    assert str(caught.value) == message


@given(st.text("${}:-?AB x", max_size=30))
def test_never_crashes(text: str) -> None:
    try:
        expand(text, VARIABLES)
    except ExpansionError:
        assert "${" in text


@given(st.text())
def test_a_doubled_dollar_is_always_a_plain_one(text: str) -> None:
    assert expand(text.replace("$", "$$"), {}) == text


@given(st.text("AB ${}", max_size=8), st.text("xy$", max_size=8))
def test_what_a_variable_holds_is_not_expanded_again(before: str, value: str) -> None:
    escaped = before.replace("$", "$$")
    assert expand(f"{escaped}${{A}}", {"A": value}) == before + value


UNIT = Unit(
    "u",
    Path("u.toml"),
    description="${A}",
    dependencies=Dependencies(after=("a",)),
    service=Service(
        exec_start=Command(("${A}", "$$")),
        exec_stop=(Command(("stop", "${OWN}")),),
        stop=StopSettings(kill_mode=KillMode.PROCESS),
        execution=Execution(
            working_directory="/${A}",
            environment=(("OWN", "own-${A}"), ("NEXT", "${OWN}!")),
            cpu_affinity=frozenset({1}),
        ),
    ),
    probes=Probes(
        startup=Probe(LogLineCheck("${A}$")),
        readiness=Probe(HttpCheck("http://${A}", headers=(("X", "${A}"),), expect_body="${A}")),
        liveness=Probe(ExecCheck(Command(("${A}",)))),
    ),
    engine=Engine(
        model="${A}",
        args=(("one", "${A}"), ("many", Repeat(("${A}",))), ("json", {"k": ["${A}", 1]}), ("yes", True)),
    ),
)


def test_a_unit_is_expanded_where_it_may_be() -> None:
    unit = expand_unit(UNIT, {"A": "x"})
    assert unit.description == "${A}"
    assert unit.service.exec_start == Command(("x", "$"))
    assert unit.service.exec_stop == (Command(("stop", "own-x")),)
    assert unit.service.stop.kill_mode is KillMode.PROCESS
    assert unit.service.execution.working_directory == "/x"
    assert unit.service.execution.environment == (("OWN", "own-x"), ("NEXT", "own-x!"))
    assert unit.service.execution.cpu_affinity == frozenset({1})
    assert unit.probes.startup == UNIT.probes.startup
    assert unit.probes.readiness == Probe(HttpCheck("http://x", headers=(("X", "x"),), expect_body="${A}"))
    assert unit.probes.liveness == Probe(ExecCheck(Command(("x",))))
    assert unit.engine is not None
    assert unit.engine.args == (("one", "x"), ("many", Repeat(("x",))), ("json", {"k": ["x", 1]}), ("yes", True))
    assert type(unit.engine.args[1][1]) is Repeat


def test_files_win_over_the_units_environment() -> None:
    unit = expand_unit(UNIT, {"A": "x"}, {"OWN": "file"})
    assert unit.service.exec_stop == (Command(("stop", "file")),)


def test_a_variable_of_the_unit_that_is_not_set_fails() -> None:
    with pytest.raises(ExpansionError, match="A: "):
        expand_unit(UNIT, {})


def test_undefined_variables_are_found_beforehand() -> None:
    assert undefined_variables(UNIT, {"A"}) == ()
    assert undefined_variables(UNIT, set()) == ("A",)


def test_the_units_own_variables_count_from_their_line_on() -> None:
    execution = Execution(environment=(("PATH", "/x:${PATH}"), ("B", "${PATH} ${C:-${D}}")))
    unit = Unit("u", Path("u"), service=Service(execution=execution))
    assert undefined_variables(unit, set()) == ("PATH", "D")
    assert undefined_variables(unit, {"PATH", "C"}) == ()


def test_verbatim_fields_exist() -> None:
    for struct, name in VERBATIM:
        assert issubclass(struct, msgspec.Struct)
        assert name in struct.__struct_fields__
