"""What startupz and readyz are told, by table."""

import pytest

from supervisor.api.readiness import Readiness, readiness
from supervisor.engine.model.instance_seen import InstanceSeen, told, why_not_serving
from supervisor.wire import EndpointStatus

NORMAL, INITIAL = EndpointStatus.NORMAL, EndpointStatus.INITIAL
WAITING = "not active: engine, store"


@pytest.mark.parametrize(
    "waiting, registered, endpoint, ending, expected",
    [
        ([], None, None, "", Readiness("", "")),
        (["engine", "store"], None, None, "", Readiness(WAITING, WAITING)),
        ([], None, None, "SIGTERM received", Readiness("", "ending: SIGTERM received")),
        (["engine", "store"], None, INITIAL, "", Readiness(WAITING, "endpoint is initial")),
        ([], None, NORMAL, "", Readiness("", "")),
        (["store"], None, NORMAL, "", Readiness("not active: store", "")),
        (
            ["engine", "store"],
            False,
            INITIAL,
            "",
            Readiness(f"{WAITING}; not registered with the controller", "endpoint is initial"),
        ),
        (["engine", "store"], True, INITIAL, "", Readiness("", "endpoint is initial")),
        ([], False, NORMAL, "", Readiness("", "")),
        ([], True, NORMAL, "told to stop", Readiness("", "ending: told to stop")),
    ],
)
def test_readiness(
    waiting: list[str], registered: bool | None, endpoint: EndpointStatus | None, ending: str, expected: Readiness
) -> None:
    found = readiness(waiting=waiting, registered=registered, endpoint=endpoint, ending=ending, unready=[])
    assert found == expected


def test_what_is_up_and_whose_readiness_fails_is_not_ready_but_has_started() -> None:
    def judged(endpoint: EndpointStatus | None) -> Readiness:
        return readiness(waiting=[], registered=None, endpoint=endpoint, ending="", unready=["web", "store"])

    assert judged(None) == judged(NORMAL) == Readiness("", "Readiness fails: web, store")
    assert judged(INITIAL) == Readiness("", "endpoint is initial")


def test_a_pod_is_ready_only_while_its_whole_instance_serves() -> None:
    def judged(endpoint: EndpointStatus | None, ending: str = "") -> Readiness:
        why = "the instance is inactive"
        return readiness(waiting=[], registered=True, endpoint=endpoint, ending=ending, unready=[], instance=why)

    assert judged(NORMAL) == Readiness("", "the instance is inactive")
    assert judged(INITIAL) == Readiness("", "endpoint is initial")
    assert judged(NORMAL, "SIGTERM received").not_ready == "ending: SIGTERM received"


@pytest.mark.parametrize(
    "before, status, epoch, expected",
    [
        ((None, 0), "initial", 1, "initial"),
        (("initial", 1), "active", 1, "active"),
        (("active", 1), "inactive", 1, "inactive"),
        # A controller that has just started knows nobody yet: no reason to take what serves out of routing.
        (("active", 1), "initial", 1, "active"),
        (("active", 1), "initial", 2, "initial"),
        (("inactive", 1), "initial", 1, "initial"),
        # The reference system's controller does not say.
        (("active", 1), None, 1, "active"),
        ((None, 0), None, 1, None),
    ],
)
def test_what_is_known_of_the_instance(
    before: tuple[str | None, int], status: str | None, epoch: int, expected: str | None
) -> None:
    assert told(InstanceSeen(*before), status, epoch).status == expected


@pytest.mark.parametrize(
    "status, nnodes, answers, expected",
    [
        (None, 2, True, ""),
        ("active", 2, False, ""),
        ("inactive", 2, True, "the instance is inactive"),
        ("inactive", 2, False, "the instance is inactive"),
        ("initial", 1, True, "the instance is initial"),
        ("inactive", 1, False, ""),
    ],
)
def test_what_is_held_against_a_pod_whose_instance_does_not_serve(
    status: str | None, nnodes: int, answers: bool, expected: str
) -> None:
    assert why_not_serving(InstanceSeen(status, 1), nnodes=nnodes, answers=answers) == expected
