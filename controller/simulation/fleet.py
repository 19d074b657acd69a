"""A modelled fleet and its controller put together, and what faults do to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controller.simulation.agenda import Agenda
from controller.simulation.control_plane import ControlPlane
from controller.simulation.faults import Fault, FaultKind
from controller.simulation.network import Network
from controller.simulation.pod import Pod, PodState, Poison
from controller.simulation.scenario import Scenario
from controller.simulation.surroundings import ControllerSide, Surroundings
from controller.simulation.told import Tell, Told, What


class Fleet:
    def __init__(self, scenario: Scenario, faults: Sequence[Fault], tell: Tell) -> None:
        self.scenario = scenario
        self.agenda = Agenda()
        self._tell = tell
        self._around = Surroundings(self.agenda, scenario, tell)
        self._network = Network(self.agenda, scenario.times.latency)
        self._by_ip: dict[str, Pod] = {}
        self._poisons = [Poison() for _ in range(scenario.fleet.instances)]
        self.instances = [
            [Pod(self._around, self._network, self._by_ip, number, rank, poison) for rank in range(scenario.fleet.pods)]
            for number, poison in enumerate(self._poisons)
        ]
        self.controller: ControlPlane | None = None
        self._term = 0
        self._controller_comes()
        for pod in self._pods():
            pod.link, pod.fell_silent = self._link(pod), self._look_at(pod)
            self.agenda.at(0.0, pod.boot)
        for fault in faults:
            self.agenda.at(fault.at, self._striking(fault))

    def run(self, after_each: Callable[[], None]) -> None:
        self.agenda.run(self.scenario.simulation.duration, after_each)

    # --- faults --------------------------------------------------------------------------------------------------

    def _striking(self, fault: Fault) -> Callable[[], None]:
        return lambda: self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        pod = self.instances[fault.instance][fault.pod]
        supervisor = pod.supervisor
        match fault.kind:
            case FaultKind.ENGINE_CRASH:
                struck = supervisor is not None and supervisor.engine_ends("killed by SIGSEGV")
            case FaultKind.ENGINE_HANG:
                struck = supervisor is not None and supervisor.engine_hangs()
            case FaultKind.DEVICE_FAULT:
                struck = pod.lose_device()
            case FaultKind.CONTAINER_DEATH:
                struck = pod.state is PodState.RUNNING
                if struck:
                    pod.ended("killed")
            case FaultKind.POD_LOSS:
                struck = pod.is_there
                if struck:
                    pod.lose()
            case FaultKind.NETWORK_CUT:
                struck = self._cut(pod, fault.lasts)
            case FaultKind.CONTROLLER_DEATH:
                self._controller_dies(fault.lasts)
                struck = True
            case FaultKind.POISONED:
                struck = self._poison(fault.instance, fault)
            case FaultKind.SHARED_CAUSE:
                poisoned = [self._poison(instance, fault) for instance in fault.hits]
                struck = any(poisoned)
        if struck:
            for instance in fault.hits or (fault.instance,):
                self._tell(Told(self.agenda.now, What.FAULT, instance, fault.pod, words=fault.kind))

    def _poison(self, instance: int, fault: Fault) -> bool:
        """The engine that runs dies at once, and so does each that follows."""
        poison = self._poisons[instance]
        poison.until = max(poison.until, self.agenda.now + fault.lasts)
        poison.dies_after = self.scenario.faults.poisoned_dies_after
        supervisor = self.instances[instance][0].supervisor
        return supervisor is not None and supervisor.engine_ends("poisoned")

    def _cut(self, pod: Pod, lasts: float) -> bool:
        if pod.is_cut_off or not pod.is_there:
            return False
        if pod.supervisor is not None:
            pod.supervisor.pulse.link_lost()
        pod.cut_off_until = self.agenda.now + lasts
        pod.fell_silent()
        self.agenda.after(lasts, lambda: self._heal(pod))
        return True

    def _heal(self, pod: Pod) -> None:
        if pod.supervisor is not None and self.controller is not None and not pod.is_cut_off:
            pod.supervisor.pulse.link_back()

    # --- the controller ------------------------------------------------------------------------------------------

    def _link(self, pod: Pod) -> Callable[[], ControllerSide | None]:
        return lambda: None if pod.is_cut_off else self.controller

    def _controller_comes(self) -> None:
        """It knows nothing but what it will be told; its term is above all that were seen."""
        self._term += 1
        first_id = self._term * 1_000_000
        self.controller = ControlPlane(self._around, self._network, self._by_ip, self._term, first_id)
        for pod in self._pods():
            if pod.supervisor is not None and not pod.is_cut_off:
                pod.supervisor.pulse.link_back()

    def _controller_dies(self, away_sec: float) -> None:
        if self.controller is None:
            return
        for pod in self._pods():
            if pod.supervisor is not None:
                pod.supervisor.pulse.link_lost()
        self.controller.die()
        self.controller = None
        self.agenda.after(away_sec, self._controller_comes)

    def _look_at(self, pod: Pod) -> Callable[[], None]:
        """Who falls silent says nothing: the controller has to look by itself."""
        return lambda: None if self.controller is None else self.controller.watch(pod.job_name)

    def _pods(self) -> list[Pod]:
        return [pod for pods in self.instances for pod in pods]
