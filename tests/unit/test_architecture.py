"""House rules that no import contract can hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPERVISOR = sorted((ROOT / "supervisor").rglob("*.py"))
FORKS_AND_REAPS = ROOT / "supervisor/process/children.py"
ONLY_THERE = {
    "os": {
        "fork",
        "forkpty",
        "posix_spawn",
        "posix_spawnp",
        "wait",
        "wait3",
        "wait4",
        "waitid",
        "waitpid",
        "system",
        "popen",
    },
    "subprocess": {"Popen", "run", "call", "check_call", "check_output"},
    "trio": {"run_process"},
    "trio.lowlevel": {"open_process"},
}


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names of what is called, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


@pytest.mark.parametrize("path", SUPERVISOR, ids=lambda path: str(path.relative_to(ROOT)))
def test_one_module_alone_forks_and_reaps(path: Path) -> None:
    """A status that somebody else takes shows as exit 0 in Python (trio-notes §1)."""
    if path == FORKS_AND_REAPS:
        return
    forbidden = {f"{module}.{name}" for module, names in ONLY_THERE.items() for name in names}
    found = [f"{path.relative_to(ROOT)}:{line}: {name}" for name, line in calls(path) if name in forbidden]
    assert not found


def test_the_rule_can_fail() -> None:
    assert any(name == "subprocess.Popen" for name, _ in calls(FORKS_AND_REAPS))


@pytest.mark.parametrize("package", ["supervisor", "controller"])
def test_nobody_signals_everybody(package: str) -> None:
    """kill(-1) hits the host's processes where the pid namespace is shared (process-managers §3, 26)."""
    found = [
        f"{path}:{node.lineno}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.kill" and ast.unparse(node.args[0]) == "-1"
    ]
    assert not found


def imported(path: Path) -> set[str]:
    return {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }


@pytest.mark.seed("S15")
@pytest.mark.seed("S17")
@pytest.mark.parametrize(
    ("module", "unknown"),
    [
        ("heartbeat", {"supervisor.engine.arbiter", "supervisor.engine.pod_engine", "supervisor.service.service"}),
        ("arbiter", {"supervisor.engine.heartbeat", "supervisor.engine.operator", "supervisor.engine.link"}),
        ("register_manager", {"supervisor.engine.operator", "supervisor.process.children"}),
    ],
)
def test_the_heartbeat_is_only_told_and_the_arbiter_only_sees(module: str, unknown: set[str]) -> None:
    """The heartbeat does not know how readiness is found out, nor the arbiter whether anybody can be reached."""
    assert not imported(ROOT / "supervisor/engine" / f"{module}.py") & unknown


def test_the_standard_streams_are_handed_to_the_command_of_command_mode_alone() -> None:
    """Whoever else had them would stop with the reader of our output, and be taken for hung (a liveness probe)."""
    with_streams = {
        str(path.relative_to(ROOT))
        for path in SUPERVISOR
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg in {"stdin", "stdout", "stderr"}
        if ast.unparse(node.value) in {"0", "1", "2", "STDIN", "STDOUT", "STDERR"}
    }
    assert with_streams == {"supervisor/command_mode.py"}
