"""exit-codes.md: the constants, each with what the source says below it."""

from __future__ import annotations

from types import ModuleType

from controller.cli import controller as of_the_controller
from controller.cli import demo
from generators import markdown, source
from supervisor import ending
from supervisor.cli import client
from supervisor.shared import asking

INTRODUCTION = (
    "0 is success everywhere. What to do about them is in [operations](../operations.md#exit-codes-of-the-supervisor)."
)
COMMAND_MODE = """
`podvisor run -- COMMAND` ends as COMMAND does: with its exit code, 128+n for signal n, and 126 or 127 if it cannot be
executed.
"""

PROGRAMS: tuple[tuple[str, tuple[ModuleType, ...]], ...] = (
    ("podvisor run: the supervisor", (ending,)),
    ("podvisor controller", (of_the_controller,)),
    ("Commands that ask the supervisor or the controller", (asking, client)),
    ("podvisor demo", (demo,)),
)


def page() -> str:
    modules = [module for _, group in PROGRAMS for module in group]
    sources = [module.__name__.replace(".", "/") + ".py" for module in modules]
    sections = [f"## {title}\n\n{_table(group)}" for title, group in PROGRAMS]
    return markdown.page("Exit codes", sources, INTRODUCTION, *sections, COMMAND_MODE)


def _table(modules: tuple[ModuleType, ...]) -> str:
    rows = [
        (getattr(module, name), markdown.code(name), meaning)
        for module in modules
        for name, meaning in source.constants(module, "EXIT_").items()
    ]
    return markdown.table(("code", "name", "meaning"), [(str(number), *rest) for number, *rest in sorted(rows)])
