"""What a reload makes of files that have changed, decided without a supervisor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.unit.differences import IN_PLACE, Takes, differences, target_of, with_in_place
from supervisor.unit.endpoints import with_endpoints
from supervisor.unit.graph import Graph
from supervisor.unit.keys import SECTIONS
from supervisor.unit.layers import layer
from supervisor.unit.model import Dependencies, Unit
from supervisor.unit.parse import parse
from supervisor.unit.reload import ENGINE, GANG, Change, Deed, Standing, Verdict, graph_of, judge
from supervisor.unit.toml_lines import read_toml

WEB = '[Service]\nExecStart = ["web"]\n'
ENGINE_FILE = '[Service]\nExecStart = ["engine"]\n[Engine]\nLauncher = "exec"\n'
LLAMA = '[Engine]\nLauncher = "llama-server"\nModel = "m.gguf"\n[Engine.Args]\n'


def unit(text: str, name: str = "web", directory: str = "units") -> Unit:
    path = Path(directory, f"{name}.toml")
    made, problems = parse(name, layer(path, read_toml(text, path)))
    assert not problems
    return made


def changed(before: str, after: str) -> dict[str, Takes]:
    return {change.key: change.takes for change in differences(unit(before), unit(after))}


# --- differences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, after, expected",
    [
        (WEB, WEB, {}),
        (WEB, WEB + 'Restart = "on-failure"\n', {}),  # the default, spelled out
        (WEB, WEB + "TimeoutStopSec = 30\n", {}),
        (WEB + 'TimeoutStopSec = "60s"\n', WEB + 'TimeoutStopSec = "1min"\n', {}),
        (WEB, WEB + 'Restart = "always"\n', {"Service.Restart": Takes.NOTHING}),
        (WEB, WEB + 'KillMode = "process"\n', {"Service.KillMode": Takes.NOTHING}),
        (WEB, WEB + "LogRotateSize = 9999\n", {"Service.LogRotateSize": Takes.NOTHING}),
        (WEB, WEB + 'StandardOutput = "json"\n', {"Service.StandardOutput": Takes.RESTART}),
        (WEB, '[Unit]\nDescription = "the web"\n' + WEB, {"Unit.Description": Takes.NOTHING}),
        (WEB, '[Unit]\nAfter = ["store"]\n' + WEB, {"Unit.After": Takes.NOTHING}),
        (WEB, '[Service]\nExecStart = ["web", "-v"]\n', {"Service.ExecStart": Takes.RESTART}),
        (WEB, WEB + "LimitNOFILE = 10\n", {"Service.LimitNOFILE": Takes.RESTART}),
        (WEB + "LimitNOFILE = 10\nLimitCORE = 0\n", WEB + "LimitNOFILE = 11\nLimitCORE = 0\n",
         {"Service.LimitNOFILE": Takes.RESTART}),
        (WEB, WEB + '[Readiness]\nTcp = "a:1"\n', {"Readiness": Takes.RESTART}),
        (WEB + '[Readiness]\nTcp = "a:1"\n', WEB + '[Readiness]\nTcp = "a:2"\n', {"Readiness.Tcp": Takes.RESTART}),
        (WEB + '[Readiness]\nTcp = "a:1"\n', WEB + '[Readiness]\nHttp = "http://a/"\n',
         {"Readiness.Http": Takes.RESTART, "Readiness.Tcp": Takes.RESTART}),
        (WEB + '[Liveness]\nTcp = "a:1"\n', WEB + '[Liveness]\nTcp = "a:1"\nOnFailure = "none"\n',
         {"Liveness.OnFailure": Takes.NOTHING}),
        (WEB, WEB + "[Engine]\n", {"Engine": Takes.RESTART, "Service.TimeoutStartSec": Takes.NOTHING,
                                   "Service.StartStallSec": Takes.NOTHING,
                                   "Service.RelaunchTimeoutStopSec": Takes.NOTHING}),
        (LLAMA + "jinja = true\n", LLAMA + "jinja = 1\n", {"Engine.Args": Takes.RESTART}),
        (LLAMA + 'lora = ["a"]\n', LLAMA + 'lora = { repeat = ["a"] }\n', {"Engine.Args": Takes.RESTART}),
        (LLAMA + "x = { a = 1, b = 2 }\n", LLAMA + "x = { b = 2, a = 1 }\n", {}),
        (WEB + 'CPUAffinity = "0,8"\n', WEB + 'CPUAffinity = "8,0"\n', {}),
    ],
)  # fmt: skip
def test_a_change_is_named_by_its_key_and_what_it_takes(before: str, after: str, expected: dict[str, Takes]) -> None:
    assert changed(before, after) == expected
    assert changed(after, before) == expected


def test_another_place_of_the_same_file_is_no_difference() -> None:
    assert differences(unit(WEB), unit(WEB, directory="overlay")) == ()


def test_every_field_of_a_unit_belongs_to_a_key() -> None:
    """A field that no key stands for would change unseen."""
    covered = {target_of(section, entry) for section in SECTIONS.values() for entry in section.entries.values()}
    inside = tuple(f"{target}." for target in covered)
    uncovered = {field for field in fields(Unit) if field not in covered and not field.startswith(inside)}
    by_position = {"name", "source", "engine.declared_by", "engine.endpoint_number"}
    from_the_launcher = {"probes.canary.rank_header"}
    read_with_its_default = {"dependencies.on_restart"}
    assert uncovered <= by_position | from_the_launcher | read_with_its_default


def fields(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for name, kind in get_type_hints(struct).items():
        inner = [
            each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, msgspec.Struct)
        ]
        if len(inner) == 1 and inner[0] in (kind, *get_args(kind)[:1]):
            yield from fields(inner[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_what_is_in_place_are_fields_of_keys() -> None:
    known = {target_of(section, entry) for section in SECTIONS.values() for entry in section.entries.values()}
    for target in IN_PLACE:
        attrgetter(target)(unit(WEB))
        assert any(each == target or each.startswith(f"{target}.") for each in known)


def test_what_takes_no_restart_is_taken_over_alone() -> None:
    after = unit('[Unit]\nDescription = "new"\n[Service]\nExecStart = ["new"]\nTimeoutStopSec = 1\n')
    merged = with_in_place(unit(WEB), after)
    assert (merged.description, merged.service.stop.timeout_sec) == ("new", 1.0)
    assert merged.service.exec_start == unit(WEB).service.exec_start


# --- verdicts --------------------------------------------------------------------------------------------------


def standing(*units: Unit, **about: object) -> dict[str, Standing]:
    return {each.name: replace(Standing(each), **about) for each in units}


def deeds(verdicts: tuple[Verdict, ...]) -> Mapping[str, tuple[Change, Deed]]:
    return {verdict.name: (verdict.change, verdict.deed) for verdict in verdicts}


def test_a_cold_start_starts_everything() -> None:
    verdicts = judge({}, [unit(WEB), unit(WEB, "store")])
    assert deeds(verdicts) == dict.fromkeys(("store", "web"), (Change.ADDED, Deed.START))
    assert graph_of(verdicts).start_order() == ("store", "web")


def test_each_unit_gets_what_its_changes_take() -> None:
    here = standing(unit(WEB, "same"), unit(WEB, "gone"), unit(WEB, "program"), unit(WEB, "limits"))
    files = [
        unit(WEB, "same"),
        unit(WEB, "new"),
        unit('[Service]\nExecStart = ["other"]\n', "program"),
        unit(WEB + 'Restart = "always"\n', "limits"),
    ]
    verdicts = judge(here, files)
    assert deeds(verdicts) == {
        "gone": (Change.REMOVED, Deed.STOP),
        "limits": (Change.CHANGED, Deed.APPLY),
        "new": (Change.ADDED, Deed.START),
        "program": (Change.CHANGED, Deed.RESTART),
        "same": (Change.UNCHANGED, Deed.NOTHING),
    }
    assert set(graph_of(verdicts).after) == {"same", "new", "program", "limits"}


def test_what_somebody_stopped_stays_down_and_has_its_new_declaration() -> None:
    after = unit('[Service]\nExecStart = ["other"]\n')
    (verdict,) = judge(standing(unit(WEB), kept_down_by="operator"), [after])
    assert (verdict.deed, verdict.becomes) == (Deed.APPLY, after)
    assert verdict.reason == "stays down: stopped by operator"


@pytest.mark.parametrize(
    "after, deed",
    [
        ("[Unit]\nConditionNodeRank = 0\n" + WEB, Deed.RESTART),
        (WEB + 'TimeoutStartSec = "1h"\n', Deed.RESTART),
        ('[Unit]\nDescription = "words"\n' + WEB, Deed.APPLY),
        (WEB, Deed.NOTHING),
    ],
)
def test_what_gave_up_is_tried_again_with_what_may_mend_it(after: str, deed: Deed) -> None:
    (verdict,) = judge(standing(unit(WEB), gave_up=True), [unit(after)])
    assert verdict.deed is deed
    (of_gang,) = judge(standing(unit(WEB), gave_up=True, gang=True), [unit(after)])
    assert of_gang.deed in (Deed.APPLY, Deed.NOTHING)


def test_a_rank_of_a_gang_is_marked_and_gets_only_what_takes_no_restart() -> None:
    before = unit(ENGINE_FILE, "engine")
    after = unit(ENGINE_FILE.replace('"engine"]', '"engine", "-v"]\nTimeoutStopSec = 7'), "engine")
    (verdict,) = judge(standing(before, gang=True), [after])
    assert (verdict.deed, verdict.reason, verdict.held) == (Deed.HOLD, GANG, ("Service.ExecStart",))
    assert verdict.becomes is not None
    assert verdict.becomes.service.exec_start == before.service.exec_start
    assert verdict.becomes.service.stop.timeout_sec == 7.0
    (back,) = judge(standing(verdict.becomes, gang=True), [before])
    assert (back.deed, back.held) == (Deed.APPLY, ())


def test_a_standalone_engine_is_restarted_like_any_unit() -> None:
    after = unit(ENGINE_FILE.replace('"engine"]', '"engine", "-v"]'), "engine")
    (verdict,) = judge(standing(unit(ENGINE_FILE, "engine")), [after])
    assert (verdict.deed, verdict.becomes) == (Deed.RESTART, after)


@pytest.mark.parametrize(
    "before, after",
    [
        (None, ENGINE_FILE),
        (ENGINE_FILE, None),
        (WEB, ENGINE_FILE),
        (ENGINE_FILE, WEB),
        (ENGINE_FILE, ENGINE_FILE + 'RestartWith = "local"\n'),
        (ENGINE_FILE, ENGINE_FILE + 'Start = "auto"\n'),
    ],
)
def test_the_supervision_of_an_engine_is_made_once(before: str | None, after: str | None) -> None:
    here = {} if before is None else standing(unit(before, "engine"))
    verdicts = judge(here, [] if after is None else [unit(after, "engine")])
    assert [(verdict.deed, verdict.reason) for verdict in verdicts] == [(Deed.HOLD, ENGINE)]
    assert (verdicts[0].becomes is None) is (before is None)


FILES = (
    WEB,
    WEB + 'Restart = "always"\n',
    '[Service]\nExecStart = ["other"]\n',
    ENGINE_FILE,
    ENGINE_FILE + 'Start = "auto"\n',
    ENGINE_FILE.replace("engine", "other"),
)
SETS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(FILES))


@given(
    before=SETS,
    after=SETS,
    by=st.sampled_from([None, "operator"]),
    gang=st.booleans(),
    gave_up=st.booleans(),
)
def test_what_was_done_once_needs_no_doing_again(
    before: dict[str, str], after: dict[str, str], by: str | None, gang: bool, gave_up: bool
) -> None:
    about = {"kept_down_by": by, "gang": gang, "gave_up": gave_up}
    files = [unit(text, name) for name, text in after.items()]
    first = judge(standing(*(unit(text, name) for name, text in before.items()), **about), files)
    assert [verdict.name for verdict in first] == sorted(before.keys() | after.keys())
    here = {verdict.name: verdict.becomes for verdict in first if verdict.becomes is not None}
    assert set(graph_of(first).after) == set(here)
    again = judge({name: replace(Standing(each), **about) for name, each in here.items()}, files)
    for verdict in again:
        assert verdict.deed in (Deed.NOTHING, Deed.HOLD)
        assert verdict.becomes == here.get(verdict.name)


def test_what_an_engine_needs_stays_with_it() -> None:
    engine = unit('[Unit]\nRequires = ["store"]\n' + ENGINE_FILE, "engine")
    verdicts = judge(standing(engine, unit(WEB, "store"), unit(WEB, "other")), [])
    assert {verdict.name: verdict.deed for verdict in verdicts} == {
        "engine": Deed.HOLD,
        "other": Deed.STOP,
        "store": Deed.HOLD,
    }


def test_what_names_an_engine_that_is_not_here_yet_waits_with_it() -> None:
    def needing(text: str, *names: str) -> str:
        return f"[Unit]\nRequires = {list(names)}\n{text}".replace("'", '"')

    here = standing(
        unit(ENGINE_FILE, "engine"), unit(needing(WEB, "engine", "old"), "router"), unit(WEB, "old"), unit(WEB, "rest")
    )
    several = with_endpoints(
        [
            unit(ENGINE_FILE + "Endpoints = 2\n", "engine"),
            unit(needing(WEB + 'Restart = "always"\n', "engine"), "router"),
            unit(needing(WEB, "router"), "next"),
            unit(needing(WEB, "engine"), "new"),
            unit(needing(WEB, "new"), "newer"),
        ]
    )
    verdicts = {verdict.name: verdict for verdict in judge(here, several)}
    assert {name: verdict.deed for name, verdict in verdicts.items()} == {
        "engine": Deed.HOLD,
        "engine@0": Deed.HOLD,
        "engine@1": Deed.HOLD,
        "new": Deed.HOLD,
        "newer": Deed.HOLD,
        "next": Deed.START,
        "old": Deed.HOLD,  # the router as it stays needs it
        "rest": Deed.STOP,
        "router": Deed.HOLD,
    }
    assert verdicts["router"].becomes == here["router"].unit
    assert verdicts["router"].held == ("Unit.Requires", "Service.Restart")
    assert not list(graph_of(tuple(verdicts.values())).missing_requirements())


# --- order -----------------------------------------------------------------------------------------------------


def graph(**after: str) -> Graph:
    units = [Unit(name, Path(), dependencies=Dependencies(after=tuple(others.split()))) for name, others in
             after.items()]  # fmt: skip
    return Graph.of(units)


def test_units_stop_by_the_new_order_and_what_has_gone_by_the_old_one() -> None:
    before = graph(store="", engine="", router="engine", gone="engine", below="", above="below")
    after = graph(store="", engine="store", router="engine", above="")
    both = before.giving_way_to(after)
    assert both.after["engine"] == {"store"}
    assert both.after["gone"] == {"engine"}
    assert both.after["above"] == {"below"}


def test_an_order_that_has_been_turned_round_is_no_circle() -> None:
    before = graph(a="gone", b="", gone="b")
    after = graph(a="", b="a")
    both = before.giving_way_to(after)
    assert both.cycle() == ()
    assert both.after == {"a": frozenset(), "b": {"a"}, "gone": frozenset()}
