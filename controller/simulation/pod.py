"""One modelled pod: its container's life under a kubelet, the node it is on, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

from controller.simulation import kubelet
from controller.simulation.engine import Engine
from controller.simulation.kubelet import BackOff
from controller.simulation.network import Network
from controller.simulation.scenario import Scenario
from controller.simulation.supervisor import Remembered, Supervisor
from controller.simulation.surroundings import Life, Link, Surroundings
from controller.simulation.told import Told, What
from supervisor import wire

PORT = 1026
P90 = 1.2815515655446004
"""Standard deviations from the median to what nine of ten do not exceed."""


class PodState(StrEnum):
    RUNNING = "running"
    BACK_OFF = "back-off"
    """The kubelet waits before it restarts the container."""
    CONTAINER = "container"
    """It is being started."""
    POD = "pod"
    """The pod is being created anew."""


class Poison:
    """What makes the engines of an instance die again and again."""

    def __init__(self) -> None:
        self.until = -math.inf
        self.dies_after = 0.0


class Pod:
    def __init__(
        self, surroundings: Surroundings, network: Network, pods: dict[str, Pod], instance: int, rank: int,
        poison: Poison,
    ) -> None:  # fmt: skip
        self.instance = instance
        self.rank = rank
        self.state = PodState.CONTAINER
        self.supervisor: Supervisor | None = None
        self.cut_off_until = -math.inf
        self.link: Link = lambda: None
        self.fell_silent: Callable[[], None] = lambda: None
        """Told when nothing will be heard from it for a while."""
        self._around = surroundings
        self._network = network
        self._pods = pods
        self._poison = poison
        self._life = Life(surroundings.agenda)
        """Of the pod itself; another begins when it is created anew."""
        self._created = 0
        self._boots = 0
        self._pids = 0
        self._started_at = 0.0
        self._back_off = BackOff()
        self._remembered = Remembered()
        self._device_is_gone = False
        self._is_fresh = True
        self._loads = surroundings.chance("load", instance, rank)
        self._spread = math.log(surroundings.scenario.times.load_spread) / P90
        self._join()

    @property
    def ip(self) -> str:
        """Another one in each life of the pod, and of no two pods."""
        number = (
            self._created * self._scenario.fleet.instances + self.instance
        ) * self._scenario.fleet.pods + self.rank
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    @property
    def is_there(self) -> bool:
        return self.state is not PodState.POD

    @property
    def is_cut_off(self) -> bool:
        return self._around.now < self.cut_off_until

    @property
    def job_name(self) -> str:
        return job_name(self.instance)

    def boot(self) -> None:
        """Its container has started."""
        self._boots += 1
        self.state = PodState.RUNNING
        self._started_at = self._around.now
        boot_id = f"boot-{self.instance}-{self.rank}-{self._boots}"
        self.supervisor = Supervisor(self._around, self, self.link, boot_id, self._remembered)
        self._tell(What.BOOT, of=boot_id)
        self.supervisor.boot()

    def ended(self, reason: str) -> None:
        """The container is over; the kubelet sees to it, unless a device of the node is gone."""
        if self._device_is_gone:
            self.lose()
            return
        self._end_life(What.CONTAINER_ENDED, reason)
        times = self._scenario.times
        self._back_off, wait = kubelet.restart(self._back_off, self._around.now - self._started_at, times)
        self.state = PodState.BACK_OFF if wait else PodState.CONTAINER
        self._life.after(wait, self._start_container)

    def lose(self) -> None:
        """The pod is gone, and created anew elsewhere."""
        self._end_life(What.POD_LOST, "its node is gone")
        self._life.lives = False
        self._life = Life(self._around.agenda)
        self._network.part(self._address)
        del self._pods[self.ip]
        self._created += 1
        self._join()
        self.state = PodState.POD
        self.cut_off_until, self._device_is_gone = -math.inf, False
        self._is_fresh = True
        self._back_off, self._remembered = BackOff(), Remembered()
        self._life.after(self._scenario.times.pod_start, self.boot)

    def lose_device(self) -> bool:
        """False if no engine was there to notice it."""
        supervisor = self.supervisor
        if supervisor is None or not supervisor.engine_ends("its device is gone", device=True):
            return False
        self._device_is_gone = True
        return True

    # --- for its supervisor --------------------------------------------------------------------------------------

    def identity(self, boot_id: str, remembered: Remembered) -> wire.SupervisorIdentity:
        scenario = self._scenario
        return wire.SupervisorIdentity(
            job_name=self.job_name,
            model_name="model",
            role="union",
            pod_ip=self.ip,
            nm_port=str(PORT),
            parallel_config=wire.ParallelConfig(dp_size=scenario.fleet.pods),
            nnodes=scenario.fleet.pods,
            enable_engine_relaunch=scenario.operation.enabled,
            freeze_sec=scenario.operation.freeze.duration_sec,
            pod_name=f"{self.job_name}-{self.rank}",
            pod_uid=f"{self.job_name}-{self.rank}-{self._created}",
            boot_id=boot_id,
            node_index=self.rank,
            features=wire.FEATURES,
            protocol=wire.PROTOCOL,
            epoch=remembered.epoch,
            term=remembered.term,
        )

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    def load_sec(self) -> float:
        times, operation = self._scenario.times, self.supervisor.operation if self.supervisor else None
        median = times.load_in_place
        if operation is None or operation.relaunch_count == 0:
            median = times.load_in_pod if self._is_fresh else times.load_in_container
        self._is_fresh = False
        return median * self._loads.lognormvariate(0.0, self._spread)

    def dies_after(self, engine: Engine) -> float | None:
        return self._poison.dies_after if self.is_poisoned() else None

    def is_poisoned(self) -> bool:
        return self.rank == 0 and self._around.now < self._poison.until

    # --- inside --------------------------------------------------------------------------------------------------

    @property
    def _scenario(self) -> Scenario:
        return self._around.scenario

    @property
    def _address(self) -> str:
        return f"{self.ip}:{PORT}"

    def _join(self) -> None:
        self._network.join(self._address, self)
        self._pods[self.ip] = self

    def _start_container(self) -> None:
        self.state = PodState.CONTAINER
        self._tell(What.CONTAINER_STARTS)
        self._life.after(self._scenario.times.container_start, self.boot)

    def _end_life(self, what: What, reason: str) -> None:
        supervisor, boot_id = self.supervisor, None
        if supervisor is not None:
            self._remembered, boot_id = supervisor.remember(), supervisor.boot_id
            supervisor.die()
            self.fell_silent()  # who looks has to find who it was that was heard
            self._network.broken(supervisor)
        self.supervisor = None
        self._tell(what, reason, boot_id)

    def _tell(self, what: What, words: str = "", of: str | None = None) -> None:
        self._around.tell(Told(self._around.now, what, self.instance, self.rank, words=words, of=of))


def job_name(instance: int) -> str:
    return f"job-{instance}"


def number_of(job_name: str) -> int:
    return int(job_name.removeprefix("job-"))
