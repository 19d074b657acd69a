"""What the router of docs/routing.md makes of a list of instances, and of the events after it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from docs.examples.router import Routes

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
Told = Mapping[str, object]


def view(id_: int, *ips: str, status: str = "active", model: str = "llama", role: str = "union") -> Told:
    endpoints = [{"ip": ip, "port": 8000, "headless": rank > 0} for rank, ip in enumerate(ips)]
    return {"id": id_, "status": status, "model_name": model, "role": role, "endpoints": endpoints}


def listing(*views: Told) -> Told:
    return {"instances": views, "last_event": "0a1b2c3d-7"}


def becomes(id_: int, status: str) -> Told:
    return {"id": 8, "kind": "instance", "instance_id": id_, "status": status}


def serves(id_: int, *endpoints: str, model: str = "llama", role: str = "union") -> Told:
    told = {"model_name": model, "role": role, "endpoints": list(endpoints)}
    return {"id": 8, "kind": "identity", "instance_id": id_, "epoch": 2} | told


def known(routes: Routes) -> list[str]:
    return sorted(routes.each())


def routes(*views: Told, model: str | None = None) -> Routes:
    found = Routes(model)
    found.begin(listing(*views))
    return found


@pytest.mark.parametrize(
    "events, expected",
    [
        ([], [A]),
        ([becomes(1, "inactive")], []),
        ([becomes(1, "deleted")], []),
        ([becomes(1, "inactive"), becomes(1, "active")], [A]),
        ([becomes(1, "inactive"), serves(1, B)], []),
        ([becomes(1, "inactive"), serves(1, B), becomes(1, "active")], [B]),
        ([serves(1, A)], [A]),
        ([serves(2, B, C), becomes(2, "active")], [A, B, C]),
        ([serves(2, B)], [A]),
        ([becomes(2, "active")], [A]),
        ([{"id": 8, "kind": "controller", "message": "leads"}], [A]),
    ],
)
def test_only_endpoints_of_active_instances_are_known(events: list[Told], expected: list[str]) -> None:
    those = routes(view(1, "10.0.0.1"))
    for event in events:
        those.hear(event)
    assert known(those) == expected


def test_an_engine_that_spans_pods_takes_requests_in_the_first() -> None:
    assert known(routes(view(1, "10.0.0.1", "10.0.0.2"))) == [A]


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert known(routes(view(1, "fd00::1"))) == ["[fd00::1]:8000"]


@pytest.mark.parametrize("role, model", [("prefill", "llama"), ("union", "another")])
def test_clients_are_sent_to_no_prefill_and_no_other_model(role: str, model: str) -> None:
    those = routes(view(1, "10.0.0.1", role=role, model=model), model="llama")
    those.hear(serves(2, B, role=role, model=model))
    those.hear(becomes(2, "active"))
    assert known(those) == []


def test_each_request_begins_elsewhere_and_tries_all_that_are_left() -> None:
    those = routes(view(1, "10.0.0.1"), view(2, "10.0.0.2"))
    assert {next(those.each()) for _ in range(2)} == {A, B}
    trying = those.each()
    first = next(trying)
    those.hear(becomes(1 if first == B else 2, "inactive"))
    assert list(trying) == [], "it went INACTIVE while the first was tried"
