"""`podvisor run -- COMMAND` under the suites of the programs whose place it takes, and the controls that must fail."""

from __future__ import annotations

import faulthandler
import os
import shutil
from pathlib import Path

import pytest

from tests.suites.cases import DUMB_INIT_CONTROL_FAILS, TINI_CONTROL_FAILS, matches
from tests.suites.checkouts import VARIABLE, NoCheckout, checkout
from tests.suites.running import CONTROLS, Outcome, run_dumb_init, run_tini

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="tini's suite needs a C compiler (cc)")
pytestmark = pytest.mark.timeout(7200)
ONE_OF_EACH = ("*::*[[]0*", "*[[]1-1-rewrite_map1-*")
"""Under the control most cases fail by their time limit, so not every variant of each."""


@pytest.fixture(autouse=True)
def long_test() -> None:
    """They take minutes: no traces of all threads after two of them."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def dumb_init(tmp_path: Path) -> Path:
    return suite("dumb-init", tmp_path)


@pytest.fixture
def tini(tmp_path: Path) -> Path:
    return suite("tini", tmp_path)


def suite(name: str, directory: Path) -> Path:
    """They take minutes, and are somebody else's: run when asked for, beside `python -m tests.suites`."""
    if VARIABLE not in os.environ:
        pytest.skip(f"set {VARIABLE} to a directory with checkouts of dumb-init and tini, or: python -m tests.suites")
    try:
        return checkout(name, directory)
    except NoCheckout as error:
        pytest.skip(str(error))


def all_passed(outcome: Outcome) -> None:
    assert outcome.failures, outcome.said
    assert {name: failure for name, failure in outcome.failures.items() if failure is not None} == {}


async def test_dumb_inits_behavioural_suite(dumb_init: Path, tmp_path: Path) -> None:
    all_passed(await run_dumb_init(dumb_init, tmp_path, "podvisor"))


async def test_an_init_that_only_waits_fails_dumb_inits_suite(dumb_init: Path, tmp_path: Path) -> None:
    outcome = await run_dumb_init(dumb_init, tmp_path, CONTROLS["dumb-init"], ONE_OF_EACH)
    assert outcome.failed
    assert [name for name in outcome.passed if matches(name, DUMB_INIT_CONTROL_FAILS)] == []


@needs_compiler
async def test_tinis_inner_suite(tini: Path, tmp_path: Path) -> None:
    all_passed(await run_tini(tini, tmp_path, "podvisor"))


@needs_compiler
async def test_no_init_at_all_fails_tinis_inner_suite(tini: Path, tmp_path: Path) -> None:
    outcome = await run_tini(tini, tmp_path, CONTROLS["tini"])
    assert outcome.failed
    assert [name for name in outcome.passed if matches(name, TINI_CONTROL_FAILS)] == []
