"""Requests of the controller on their way to supervisors, and what comes of them when somebody is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from controller.model.relaunch.exchange import Answer, Probe, Request, Silence, Unreachable
from controller.simulation.agenda import Agenda
from controller.simulation.supervisor import Supervisor

Reply = Callable[[Answer], None]


class Target(Protocol):
    @property
    def supervisor(self) -> Supervisor | None: ...

    @property
    def is_there(self) -> bool:
        """Its node answers, if only to say that nobody listens."""

    @property
    def is_cut_off(self) -> bool: ...


class Network:
    def __init__(self, agenda: Agenda, latency_sec: float) -> None:
        self._agenda = agenda
        self._latency_sec = latency_sec
        self._targets: dict[str, Target] = {}
        self._on_the_way: dict[Supervisor, list[_Exchange]] = {}

    def join(self, address: str, target: Target) -> None:
        self._targets[address] = target

    def part(self, address: str) -> None:
        self._targets.pop(address, None)

    def ask(self, address: str, request: Request, timeout_sec: float, reply: Reply) -> None:
        """`reply` is called once, within `timeout_sec`."""
        exchange = _Exchange(address, self._agenda.now + timeout_sec, reply)
        self._agenda.after(self._latency_sec, lambda: self._arrive(exchange, request))

    def broken(self, supervisor: Supervisor) -> None:
        """Its life is over, and so are its connections."""
        for exchange in self._on_the_way.pop(supervisor, []):
            exchange.end(Unreachable(Silence.SILENT, f"{exchange.address}: the connection broke"))

    def _arrive(self, exchange: _Exchange, request: Request) -> None:
        target = self._targets.get(exchange.address)
        if target is None or target.is_cut_off or not target.is_there:
            self._time_out(exchange)
            return
        supervisor = target.supervisor
        if supervisor is None:
            exchange.end(Unreachable(Silence.REFUSED, f"{exchange.address}: nobody listens"))
            return
        if isinstance(request, Probe):
            supervisor.serve(request, exchange.end)
            return
        self._on_the_way.setdefault(supervisor, []).append(exchange)
        supervisor.serve(request, lambda answer: self._answered(target, supervisor, exchange, answer))
        if not exchange.is_over:
            self._time_out(exchange)

    def _answered(self, target: Target, supervisor: Supervisor, exchange: _Exchange, answer: Answer) -> None:
        under_way = self._on_the_way.get(supervisor, [])
        if exchange in under_way:
            under_way.remove(exchange)
        if not target.is_cut_off:
            exchange.end(answer)

    def _time_out(self, exchange: _Exchange) -> None:
        silent = Unreachable(Silence.SILENT, f"{exchange.address}: no answer in time")
        self._agenda.at(exchange.deadline, lambda: exchange.end(silent))


class _Exchange:
    """One request that waits for its answer."""

    def __init__(self, address: str, deadline: float, reply: Reply) -> None:
        self.address = address
        self.deadline = deadline
        self.is_over = False
        self._reply = reply

    def end(self, answer: Answer) -> None:
        if not self.is_over:
            self.is_over = True
            self._reply(answer)
