"""The controller's modules import each other in one direction only (S19)."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import controller

ROOT = Path(controller.__file__).parent


def modules() -> dict[str, Path]:
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = ("controller", *path.relative_to(ROOT).with_suffix("").parts)
        names[".".join(part for part in parts if part != "__init__")] = path
    return names


def imported(path: Path, known: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & known


@pytest.mark.seed("S19")
def test_S19_no_import_cycles() -> None:
    known = modules()
    graph = {name: imported(path, set(known)) - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")
    assert "controller.model.relaunch.plan" in graph
