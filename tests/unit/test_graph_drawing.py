"""`podvisor graph` from unit files: order and requirement are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from supervisor import wire
from supervisor.cli import podvisor
from supervisor.cli.drawing import ascii_lines, dot_lines, mermaid_lines


@pytest.fixture
def units(tmp_path: Path) -> Path:
    for name, section in {
        "store": "",
        "exporter": 'After = ["store"]\nWants = ["store", "nosuch"]',
        "engine": 'Requires = ["store"]\nAfter = ["store"]',
        "router": 'Requires = ["engine"]',
    }.items():
        (tmp_path / f"{name}.toml").write_text(f'[Unit]\n{section}\n[Service]\nExecStart = ["true"]\n')
    return tmp_path


def drawn(units: Path, *arguments: str) -> list[str]:
    result = CliRunner().invoke(podvisor, ["graph", "--units", str(units), *arguments])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_for_people_in_the_order_of_the_start(units: Path) -> None:
    assert drawn(units) == [
        "1. router (exec)",
        "   ==> engine  requires",
        "1. store (exec)",
        "2. engine (exec)",
        "   ==> store   requires, after",
        "2. exporter (exec)",
        "   --> store   after, wants",
        "   ..> nosuch  wants",
    ]


RELATIONS = """
BindsTo = ["store"]
PartOf = ["engine"]
After = ["engine"]
Conflicts = ["exporter"]
OnDependencyRestart = { engine = "restart" }
"""


def test_what_units_do_with_each_other(units: Path) -> None:
    (units / "adapter.toml").write_text(f'[Unit]{RELATIONS}[Service]\nExecStart = ["true"]\n')
    assert [line for line in drawn(units)[-4:] if line[0] == " "] == [
        "   ==> store     binds-to",
        "   ~~> engine    part-of, on-dependency-restart, after",
        "   x-x exporter  conflicts",
    ]
    edges = [line.strip() for line in drawn(units, "--format", "dot") if '"adapter" ->' in line]
    assert edges == [
        '"adapter" -> "store" [style = bold, label = "binds-to"]',
        '"adapter" -> "engine" [style = dashed, label = "part-of, on-dependency-restart, after"]',
        '"adapter" -> "exporter" [style = solid, dir = both, arrowhead = tee, arrowtail = tee, label = "conflicts"]',
    ]
    mermaid = drawn(units, "--format", "mermaid")
    assert any("x--x|conflicts|" in line for line in mermaid)
    assert not any('"exporter" -> "adapter"' in line for line in drawn(units, "--format", "dot"))  # one line for both


def test_for_graphviz(units: Path) -> None:
    lines = drawn(units, "--format", "dot")
    assert (lines[0], lines[-1]) == ("digraph units {", "}")
    assert '    "engine" -> "store" [style = bold, label = "requires, after"]' in lines
    assert '    "exporter" -> "store" [style = solid, label = "after, wants"]' in lines
    assert '    "exporter" -> "nosuch" [style = dotted, label = "wants"]' in lines


def test_for_mermaid_every_unit_has_an_identifier_of_its_own() -> None:
    view = wire.GraphView(
        units=(wire.NodeView(name="a-b", type="exec"), wire.NodeView(name="a.b", type="engine", state="failed")),
        edges=(wire.EdgeView(source="a-b", target="a.b", kind="after"),),
    )
    assert list(mermaid_lines(view)) == [
        "graph LR",
        '    a_b_0["a-b (exec)"]',
        '    a_b_1["a.b (engine, failed)"]',
        "    a_b_0 -->|after| a_b_1",
    ]


def test_states_have_colours_that_a_pipe_does_not_see() -> None:
    view = wire.GraphView(units=(wire.NodeView(name="web", type="exec", state="active"),), edges=())
    (line,) = ascii_lines(view)
    assert line == f"1. {click.style('web (exec): active', fg='green')}"
    assert click.unstyle(line) == "1. web (exec): active"
    assert not any("\x1b" in each for each in (*dot_lines(view), *mermaid_lines(view)))


def test_for_tools(units: Path) -> None:
    (line,) = drawn(units, "--json")
    view = json.loads(line)
    assert view["units"][0] == {"name": "router", "type": "exec", "state": None}
    assert {"source": "engine", "target": "store", "kind": "requires"} in view["edges"]


def test_wrong_files_are_not_drawn(units: Path) -> None:
    (units / "store.toml").write_text("[Service]\nExecStrat = 1\n")
    result = CliRunner().invoke(podvisor, ["graph", "--units", str(units)])
    assert result.exit_code == 78
    assert "store.toml:2: Service.ExecStrat" in result.output
