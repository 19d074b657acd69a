"""The scenarios that come with podvisor."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def shipped() -> list[Path]:
    return sorted(HERE.glob("*.toml"))


def find(named: Path) -> Path:
    """A file that is there, else the shipped scenario of this name, else what was named."""
    ours = HERE / f"{named}.toml"
    return ours if not named.exists() and named.name == str(named) and ours.exists() else named
