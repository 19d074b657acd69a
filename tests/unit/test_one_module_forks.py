"""Architecture: in the supervisor one module alone forks and reaps; a second reaper would steal exit statuses."""

from __future__ import annotations

import ast
from pathlib import Path

import supervisor

ROOT = Path(supervisor.__file__).parent
REAPER = ROOT / "process" / "children.py"
MODULES = {"subprocess", "multiprocessing", "pty"}
CALLS = {
    "fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "wait", "wait3", "wait4", "waitid", "waitpid",
}  # fmt: skip
TRIO_CALLS = {"run_process", "open_process"}


def forbidden(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module.split(".")[0] in MODULES else []
            found += [alias.name for alias in node.names if node.module == "os" and alias.name in CALLS]
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            found += [f"os.{node.attr}"] if owner == "os" and node.attr in CALLS else []
            found += [node.attr] if node.attr in TRIO_CALLS else []
    return found


def test_only_children_forks_and_reaps() -> None:
    others = [path for path in ROOT.rglob("*.py") if path != REAPER]
    assert {path: found for path in others if (found := forbidden(ast.parse(path.read_text())))} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    assert set(forbidden(ast.parse(REAPER.read_text()))) == {"subprocess", "os.waitid"}
    assert forbidden(ast.parse("from os import fork\nimport trio\ntrio.run_process([])")) == ["fork", "run_process"]
