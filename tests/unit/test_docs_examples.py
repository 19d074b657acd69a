"""What the guide shows is taken by the parser, so that nobody copies a mistake out of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from supervisor.unit.errors import ConfigurationError
from supervisor.unit.parse import load_units

DOCS = Path(__file__).parents[2] / "docs"
FENCED = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
STORE = '[Service]\nExecStart = ["true"]\n'


def examples(page: str) -> list[str]:
    return FENCED.findall((DOCS / page).read_text())


EXAMPLES = examples("guide.md")


def test_the_guide_has_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_guide_is_a_unit(text: str, tmp_path: Path) -> None:
    (tmp_path / "example.toml").write_text(text)
    for name in ("kv-store", "weights"):
        (tmp_path / f"{name}.toml").write_text(STORE)
    drop_in = "ExecStart" not in text and "Launcher" not in text
    if drop_in:
        (tmp_path / "example.toml").unlink()
        folder = tmp_path / "kv-store.toml.d"
        folder.mkdir()
        (folder / "more.toml").write_text(text)
    try:
        units = load_units([tmp_path])
    except ConfigurationError as error:
        pytest.fail("\n".join(str(problem) for problem in error.problems))
    assert drop_in or "example" in [unit.name for unit in units]
