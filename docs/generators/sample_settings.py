"""podvisor.sample.toml: a settings file with every key, commented out at its default, to copy from."""

from __future__ import annotations

from collections.abc import Iterator

from generators.settings import PROGRAMS, Program, expected
from generators.written import NOT_SET, as_written
from supervisor.settings_file import Key, keys_of

HEAD = """\
# Every key of podvisor.toml at its default, generated from the code (docs/generate.py).
# One file may serve both programs; "controller:" marks what only the controller reads.
"""


def page() -> str:
    names = dict.fromkeys(name for program in PROGRAMS for name in program.sections)
    return HEAD + "".join(_section(name) for name in names)


def _section(name: str) -> str:
    lines = [line for program in PROGRAMS if name in program.sections for line in _keys(name, program)]
    return f"\n[{name}]\n" + "\n".join(dict.fromkeys(lines)) + "\n"


def _keys(name: str, program: Program) -> Iterator[str]:
    """A key that both programs read stands once, as the first of them says."""
    earlier = PROGRAMS[: PROGRAMS.index(program)]
    told = {key for other in earlier if name in other.sections for key in keys_of(other.sections[name])}
    for key in keys_of(program.sections[name]).values():
        if key.name not in told:
            yield _key(key, "controller: " if program.name == "controller" and name != "controller" else "")


def _key(key: Key, mark: str) -> str:
    default = as_written(key.convert, key.default).strip("`")
    value = "" if default == NOT_SET else f" {default}"
    return f"# {mark}{key.doc} ({expected(key)})\n#{key.name} ={value}"
