"""What startupz and readyz are told, by table."""

import pytest

from supervisor.api.readiness import Readiness, readiness
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
