"""Real engine programs for a test, or the skip that says which is not here."""

import pytest

from controller.demo.engines import Engines, find_engines


@pytest.fixture
def engines() -> Engines:
    return find_engines()


def program(engines: Engines, name: str) -> str:
    """The path of a program (names: controller.demo.engines.PROGRAMS). Skips the test when it is not here."""
    if name in engines.missing:
        pytest.skip(engines.missing[name])
    return str(engines.programs[name])
