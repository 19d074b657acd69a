"""Every podvisor command that the documentation types is there, with the options it is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from supervisor.cli import podvisor

PROJECT = Path(__file__).parents[2]
PAGES = sorted((*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md"), *PROJECT.glob("deploy/**/*.md")))
FENCED = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHELLS = {"", "sh", "bash", "console"}
TYPED = re.compile(r"(?:^ *|\$ |; |&& |bin/)podvisor ([a-z].*)$")
SPAN = re.compile(r"`podvisor ([a-z][^`]*)`")


def typed(page: Path) -> Iterator[str]:
    text = page.read_text()
    yield from SPAN.findall(FENCED.sub("", text))
    for language, block in FENCED.findall(text):
        for line in block.splitlines() if language in SHELLS else ():
            if match := TYPED.search(line.split("#")[0].split(" | ")[0]):
                yield match[1]


def problem(words: list[str]) -> str | None:
    """What is wrong with a command line; what stands for something, such as UNIT, is taken as it is."""
    command: click.Command = podvisor
    context = click.Context(podvisor)
    words = words[: words.index("--")] if "--" in words else words
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(context, words[0])
        if found is None:
            return f"there is no command {words[0]}"
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)]
    unknown = [option for option in options if option not in known | {"--help", "-h"}]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else None


def words_of(line: str) -> list[str]:
    try:
        return shlex.split(re.sub(r"[.,;:)…]+$", "", line))
    except ValueError:
        return line.split()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(PROJECT)) for page in PAGES])
def test_what_is_typed_can_be_typed(page: Path) -> None:
    found = {line: said for line in typed(page) if (said := problem(words_of(line)))}
    assert found == {}


def test_what_cannot_be_typed_is_found() -> None:
    assert problem(["frobnicate"]) == "there is no command frobnicate"
    assert problem(["instance", "frobnicate", "INSTANCE"]) == "there is no command frobnicate"
    assert problem(["status", "--frobnicate"]) == "status has no --frobnicate"
    assert sum(len(list(typed(page))) for page in PAGES) > 100
