"""What the relaunch protocol promises, and what broke earlier drafts of it: where each is tested.

That every test named here exists is checked, and so is that nothing of the protocol's two lists is missing.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
WALK = "virtual/test_gang_walk.py::test_a_gang_always_comes_to_rest"
RUN = "unit/test_controller_relaunch_properties.py::"
LIFE = "unit/test_engine_invariants.py::"

INVARIANTS: dict[str, tuple[str, ...]] = {
    # A supervisor's part is the machine `Life`, a run's the machine `RunMachine`, both together the walk.
    "I1 never processes of two epochs alive": (f"{LIFE}Life", WALK),
    "I2 every freeze ends by itself": (f"{LIFE}Life", f"{RUN}I2_I4_every_run_ends_by_itself", WALK),
    "I3 units that are not engines keep their pids": (
        WALK,
        "pods/test_main_job.py::test_S28_a_killed_supervisor_costs_the_other_pod_its_engine_and_nothing_else",
    ),
    "I4 cancelled anywhere, both sides end in a named state": (
        f"{LIFE}Life",
        f"{RUN}I2_I4_every_run_ends_by_itself",
        "virtual/test_controller_cancel.py::test_a_run_may_be_cancelled_at_every_checkpoint",
        "virtual/test_controller_cancel.py::test_phase_two_may_be_cancelled_at_every_checkpoint",
        "virtual/test_controller_cancel.py::test_waiting_for_a_lost_member_may_be_cancelled_at_every_checkpoint",
        "virtual/test_controller_cancel.py::test_a_run_that_loses_a_member_may_be_cancelled_at_every_checkpoint",
        "virtual/test_controller_cancel.py::test_a_back_off_may_be_cancelled_at_every_checkpoint",
        "virtual/test_controller_cancel.py::test_the_queue_may_be_cancelled_at_every_checkpoint",
    ),
    "I5 what is older has no effect": (f"{LIFE}Life", f"{RUN}RunMachine"),
    "C1 at most one run for an instance": (
        "virtual/test_gang_faults.py::test_two_engines_that_die_at_the_same_moment_are_one_run",
    ),
    "C2 no start before all are prepared": (f"{RUN}C2_nobody_starts_before_all_are_prepared", WALK),
    "C3 whoever was frozen was told or is named": (f"{RUN}C3_whoever_is_frozen_was_told_or_is_named",),
    "C4 the journal is written before the effect": (f"{RUN}C4_the_journal_has_it_before_it_is_sent",),
    "C5 no success while anything loads": (f"{RUN}C5_C6_nothing_loads_and_all_are_fresh",),
    "C6 no oscillation": (
        f"{RUN}C5_C6_nothing_loads_and_all_are_fresh",
        "virtual/test_gang_rejoin.py::test_S28_the_others_keep_their_containers_and_nothing_oscillates",
        WALK,
    ),
}

SEQUENCES: dict[int, tuple[str, str]] = {
    1: ("NORMAL of the old epoch is taken for the new", "unit/test_controller_relaunch.py"),
    2: ("ABNORMAL is kept through a load", "virtual/test_gang_faults.py"),
    3: ("a container is back before anything times out", "virtual/test_gang_faults.py"),
    4: ("AWAIT times out with all dispatched", "unit/test_controller_relaunch.py"),
    5: ("the budget is spent, the healthy run on with dead peers", "unit/test_controller_relaunch.py"),
    6: ("a survivor is an epoch ahead of the reassembly", "unit/test_controller_relaunch.py"),
    7: ("the controller restarts between registration and assembly", "virtual/test_gang_controller.py"),
    8: ("the retry of a stop hits the new container", "virtual/test_gang_faults.py"),
    9: ("abort overtakes prepare", "virtual/test_gang_faults.py"),
    10: ("a stopped member thaws with start and abort queued", "virtual/test_gang_faults.py"),
    11: ("one is prepared long before the other", "virtual/test_gang_faults.py"),
    12: ("the same in back-off", "virtual/test_gang_faults.py"),
    13: ("the budget is reset by the registration that it causes", "unit/test_controller_relaunch.py"),
    14: ("409 for a local relaunch kills all containers", "virtual/test_gang_faults.py"),
    15: ("a second engine dies 50 ms later", "virtual/test_gang_faults.py"),
    16: ("a death inside the grace period", "virtual/test_gang_faults.py"),
    17: ("the controller is updated in PREPARE", "virtual/test_gang_controller.py"),
    18: ("the store is lost, the term restarts low", "virtual/test_gang_takeover.py"),
    19: ("a heartbeat to a standby", "virtual/test_gang_takeover.py"),
    20: ("a graver fault in PREPARE", "unit/test_controller_relaunch.py"),
    21: ("one direction is cut", "virtual/test_gang_faults.py"),
    22: ("the engine is up before its peer", "pods/test_main_job.py"),
    23: ("one rank is stopped by an operator, another dies", "virtual/test_gang_operators.py"),
    24: ("terminated in any step", "virtual/test_gang_operators.py"),
}


@pytest.mark.parametrize("node", sorted({node for nodes in INVARIANTS.values() for node in nodes}))
def test_what_holds_an_invariant_exists(node: str) -> None:
    file, _, name = node.partition("::")
    assert name in names_of(file)


def test_no_invariant_is_missing() -> None:
    assert [words.split()[0] for words in INVARIANTS] == [f"I{n}" for n in range(1, 6)] + [f"C{n}" for n in range(1, 7)]


@pytest.mark.parametrize("number", range(1, 25))
def test_every_sequence_has_a_test_that_names_it(number: int) -> None:
    what, file = SEQUENCES[number]
    assert any(name.startswith((f"test_F{number}_", f"test_F{number:02}_")) for name in names_of(file)), what


@cache
def names_of(file: str) -> frozenset[str]:
    """Of all functions, methods and classes."""
    tree = ast.parse((TESTS / file).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
