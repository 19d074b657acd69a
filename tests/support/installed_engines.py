"""Real engine programs for a test, or the skip that says which is not here."""

from pathlib import Path

import pytest

from controller.demo.engines import EngineMissing, Engines, find_engines, real_model


@pytest.fixture
def engines() -> Engines:
    return find_engines()


def program(engines: Engines, name: str) -> str:
    """The path of a program (names: controller.demo.engines.PROGRAMS). Skips the test when it is not here."""
    if name in engines.missing:
        pytest.skip(engines.missing[name])
    return str(engines.programs[name])


def the_real_model(engines: Engines) -> Path:
    """The small model that says real words. Skips the test when it is not here."""
    try:
        return real_model(engines)
    except EngineMissing as missing:
        pytest.skip(str(missing))
