"""Every link within the documentation leads to a file, and to a heading that is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "units/**/*.md") for path in PROJECT.glob(pattern)
)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """As GitHub makes them of headings: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    found: dict[str, int] = {}
    for heading in headings:
        words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return frozenset(f"{name}-{n}" if n else name for name, count in found.items() for n in range(count + 1))


def broken(page: Path, link: str) -> str | None:
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: {target.name} has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(PROJECT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = (first or second for first, second in LINK.findall(FENCED.sub("", page.read_text())))
    assert [problem for link in links if (problem := broken(page, link))] == []


def test_links_that_lead_nowhere_are_found() -> None:
    page = PROJECT / "docs" / "operations.md"
    assert broken(page, "no-such-page.md") is not None
    assert broken(page, "#no-such-heading") is not None
    assert broken(page, "runbook.md#podvisorinstanceheld") is None
