"""Real engine programs for a test, or the skip that says which is not here."""

from pathlib import Path

import pytest

from controller.demo.engines import Engines, find_engines, tiny_model
from controller.demo.tiny_model import Shape


class InstalledEngines:
    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    @property
    def search_path(self) -> str:
        """What to put in front of PATH so that unit files find the programs by name."""
        return self._engines.search_path

    def program(self, name: str) -> str:
        """The path of a program (names: controller.demo.engines.PROGRAMS). Skips the test when it is not here."""
        if name in self._engines.missing:
            pytest.skip(self._engines.missing[name])
        return str(self._engines.programs[name])

    async def tiny_model(self, shape: Shape | None = None) -> Path:
        """A tiny random model, made on first use."""
        return await tiny_model(self._engines, shape or Shape())


@pytest.fixture
def engines() -> InstalledEngines:
    return InstalledEngines(find_engines())
