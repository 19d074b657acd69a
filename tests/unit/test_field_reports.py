"""What users of other process managers and inference engines reported, and where it is tested here.

The numbers are those of the project's survey of process managers (its §3a); a report without a number is of §3b,
about engines. A test that exists for a report alone has its number in its name. That every test named here exists is
checked; so is that every number stands here, with a test or with the reason why there is none.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

REPORTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "zombies pile up when it is PID 1 (pebble#71)",
        (
            "processes/test_children.py::test_no_status_is_stolen_while_a_thousand_orphans_die",
            "processes/test_run_command.py::test_orphans_are_reaped",
        ),
    ),
    2: (
        "a grandchild holds the output pipe, so that the exit goes unnoticed (pebble#149)",
        ("processes/test_output.py::test_a_grandchild_that_holds_the_pipe_holds_nothing_else",),
    ),
    3: (
        "shutdown hangs because the reaper stops before those that need it (pebble#371)",
        ("processes/test_last_resorts.py::test_an_error_of_our_own_ends_with_70_after_all_units_were_stopped",),
    ),
    4: (
        "services that are still starting are not stopped (pebble#502, dinit#225, circus#935, Supervisor#734)",
        ("processes/test_stop_in_every_state.py::test_3_04_stop_works_from_every_state",),
    ),
    5: (
        "a service that died within its first second is never retried (pebble#240)",
        ("processes/test_field_reports.py::test_3_05_a_unit_that_dies_at_once_is_retried_as_any_other",),
    ),
    6: (
        "the restart fails, since the old server still holds the port (pebble#594)",
        (
            "processes/test_standalone_engine.py::"
            "test_S29_a_killed_engine_is_relaunched_in_place_and_nothing_of_the_old_one_is_left",
            "processes/test_gate.py::test_a_leftover_that_holds_the_port_and_a_segment_is_killed",
        ),
    ),
    7: (
        "when the leader crashes its children stay (Supervisor#1101)",
        ("processes/test_service.py::test_what_a_crash_leaves_behind_is_gone_before_the_restart",),
    ),
    8: (
        "stopped is said while children live (circus#1044)",
        ("processes/test_service.py::test_stop_takes_the_whole_tree",),
    ),
    9: (
        "only the direct child is signalled; the others are not waited for (tini#229, dumb-init#80)",
        (
            "processes/test_run_command.py::test_signals_reach_the_command_and_its_group",
            "processes/test_run_command.py::test_what_the_command_leaves_behind_is_ended",
        ),
    ),
    10: (
        "SIGTERM to the whole group ends workers that their parent was draining (sapcc/helm-charts PR #11680)",
        ("processes/test_tree.py::test_mixed_asks_the_others_only_after_the_main_process_went",),
    ),
    11: (
        "children survive when the manager itself is killed (Supervisor PR #199)",
        (
            "processes/test_process_pods.py::test_nothing_is_left_of_a_container",
            "processes/test_field_reports.py::"
            "test_3_11_what_an_earlier_supervisor_left_is_found_at_the_start_and_named",
        ),
    ),
    12: (
        "the exit code is always 0, and no unit can end the manager (Supervisor#775, s6-overlay#87)",
        (
            "processes/test_run_command.py::test_the_exit_code_is_the_commands",
            "processes/test_standalone_engine.py::test_an_engine_that_cannot_start_ends_the_container_with_255",
        ),
    ),
    13: (
        "no delay or cap between restarts; one setting silently disables another (Supervisor#323, #1285)",
        (
            "processes/test_operations.py::test_a_unit_at_its_start_limit_starts_again_after_reset_failed",
            "processes/test_field_reports.py::test_3_05_a_unit_that_dies_at_once_is_retried_as_any_other",
        ),
    ),
    14: (
        "dependencies: priority numbers are not enough (Supervisor#122)",
        (
            "processes/test_operations.py::"
            "test_stop_takes_those_along_that_require_the_unit_and_start_brings_back_what_it_requires",
        ),
    ),
    15: (
        "nobody reads the log, the pipe is full, the child blocks for ever; or a closed one spins (Supervisor#1554)",
        (
            "processes/test_field_output.py::test_3_15_a_reader_of_our_stdout_that_stops_reading_stops_nobody",
            "processes/test_output.py::test_a_broken_stdout_is_no_busy_loop_and_no_crash",
        ),
    ),
    16: (
        "the daemon's memory grows with output (pm2#2188)",
        (
            "processes/test_field_output.py::test_3_15_a_reader_of_our_stdout_that_stops_reading_stops_nobody",
            "processes/test_many_restarts.py::test_nothing_grows_with_the_number_of_restarts",
        ),
    ),
    17: (
        "a client that follows the logs delays shutdown (pebble#55)",
        (
            "processes/test_operations.py::test_a_client_that_follows_does_not_hold_up_the_end",
            "processes/test_field_output.py::test_3_17_a_client_that_follows_and_stops_reading_holds_nothing_up",
        ),
    ),
    18: (
        "a step of the clock hangs or crashes it (Supervisor#281, circus#1231)",
        ("processes/test_field_clock.py::test_3_18_a_clock_that_is_set_changes_nothing",),
    ),
    19: (
        "the socket file vanishes, is stale, or is in use (Supervisor#480, #1596, lxd#296)",
        (
            "processes/test_bad_input.py::test_a_stale_socket_is_replaced",
            "processes/test_bad_input.py::test_the_socket_of_a_living_supervisor_is_named_with_its_pid",
        ),
    ),
    21: (
        "descriptors leak, or are inherited (Supervisor#184, #489)",
        (
            "processes/test_children.py::test_surroundings_of_a_child_are_clean",
            "processes/test_many_restarts.py::test_nothing_grows_with_the_number_of_restarts",
        ),
    ),
    22: (
        "a pid that is used again is signalled (systemd#6803, Supervisor#445)",
        ("processes/test_field_reports.py::test_3_22_a_number_that_is_used_again_is_not_signalled",),
    ),
    23: (
        "a program that daemonises looks as if it had ended and is started again (Supervisor#578)",
        ("processes/test_field_reports.py::test_3_23_a_program_that_daemonises_is_said_to_and_not_started_twice",),
    ),
    24: (
        "active although it fails a moment later; one global start time-out (pebble#46, s6-overlay#411)",
        (
            "processes/test_service.py::test_a_start_that_takes_too_long_is_ended",
            "processes/test_service.py::"
            "test_a_notifying_unit_is_ready_when_it_says_so_and_dies_when_it_stops_saying_so",
        ),
    ),
    25: (
        "dependents that a crash of their dependency stopped stay down (systemd#1312)",
        ("processes/test_field_reports.py::test_3_25_who_depends_on_a_unit_that_crashed_stays_up_and_it_comes_back",),
    ),
    26: (
        "it refuses not to be PID 1, or kills the host's processes (s6-overlay#383, #359)",
        (
            "processes/test_tree.py::test_a_process_outside_our_descendants_is_never_touched",
            "unit/test_architecture.py::test_nobody_signals_everybody",
        ),
    ),
    27: (
        "a death by a signal is no failure and not restarted (Horust#121)",
        ("processes/test_service.py::test_a_killed_unit_runs_again_under_a_new_pid",),
    ),
    28: (
        "stopping hangs; a restart of what waits for its dependency wedges it (process-compose#258, #530)",
        (
            "processes/test_field_reports.py::test_3_28_a_unit_that_waits_for_its_dependency_can_be_restarted_and_stopped",
        ),
    ),
    29: (
        "children of probes become zombies until no process can be forked (datahub#18969)",
        ("processes/test_service.py::test_an_exec_probe_that_hangs_is_killed_with_all_it_started",),
    ),
    30: (
        "anybody can control it over HTTP (Supervisor#964, #1245)",
        ("processes/test_field_reports.py::test_3_30_the_control_socket_is_for_its_owner_alone",),
    ),
}

NOT_TESTED_HERE = {
    20: "update and reload restart more than changed: there is no reload yet",
}

OF_ENGINES: dict[str, tuple[str, ...]] = {
    "engine core and workers outlive a killed API server and hold the device (vllm#19849, sglang#23627)": (
        "processes/test_standalone_engine.py::"
        "test_S29_a_killed_engine_is_relaunched_in_place_and_nothing_of_the_old_one_is_left",
        "processes/test_tree.py::test_a_daemon_that_hides_everything_is_known_by_its_brand",
    ),
    "SIGKILL returns before the memory of the device is free (sglang PR #36589)": (
        "processes/test_device_memory.py::test_the_next_engine_waits_until_the_memory_of_the_old_one_is_back",
        "processes/test_standalone_engine.py::test_the_next_engine_waits_for_the_device_memory_of_the_old_one",
    ),
    "leaked shared memory makes every restart in place fail (sglang#40723, vllm#54002)": (
        "processes/test_gate_owners.py::test_of_all_segments_the_dead_engines_alone_are_removed",
    ),
    "a worker dies while the parent answers 200 (sglang PR #21486)": (
        "processes/test_service.py::test_the_death_of_a_critical_process_is_the_units_death",
    ),
    "killing the tree killed the launcher itself (TensorRT-LLM PR #16404)": (
        "processes/test_tree.py::test_a_process_outside_our_descendants_is_never_touched",
    ),
}


def functions_of(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)}


def test_every_number_has_a_test_or_a_reason() -> None:
    assert REPORTS.keys() | NOT_TESTED_HERE.keys() == set(range(1, 31))
    assert not REPORTS.keys() & NOT_TESTED_HERE.keys()


EVERY_TEST = {test for _, tests in REPORTS.values() for test in tests}.union(*OF_ENGINES.values())


@pytest.mark.parametrize("named", sorted(EVERY_TEST))
def test_the_tests_exist(named: str) -> None:
    file, _, name = named.partition("::")
    assert name in functions_of(ROOT / file)


def test_a_number_in_a_name_is_that_of_a_report() -> None:
    for path in (ROOT / "processes").glob("test_*.py"):
        for name in functions_of(path):
            if name.startswith("test_3_"):
                number = int(name.split("_")[2])
                assert f"processes/{path.name}::{name}" in REPORTS[number][1]


WALL_CLOCK_FOR_PEOPLE = {
    "cli/status.py",
    "cli/waiting.py",
    "engine/node_manager.py",
    "engine/pod_engine.py",
    "engine/run_history.py",
    "life.py",
    "pod_events.py",
    "pod_operations.py",
    "process/line_format.py",
    "process/tail.py",
    "service/service.py",
}
"""Who says when something was: to a person, in a log line or in a record.

Nobody else asks the wall clock, and nothing is measured by it (3_18).
"""


def test_the_wall_clock_is_for_people() -> None:
    supervisor = ROOT.parent / "supervisor"
    asked = {
        str(path.relative_to(supervisor))
        for path in supervisor.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "time.localtime"}
    }
    assert asked <= WALL_CLOCK_FOR_PEOPLE
