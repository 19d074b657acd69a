"""Thousands of simulated supervisors in one process: `python -m tests.bench.fleet_load CONTROLLER_PORT`.

Each has a loopback address of its own, keeps a connection to the controller, says what a real one says and answers
what a real one answers. They share one epoll loop without any framework, so that the load costs a small part of what it
loads. Lines of JSON on stdin are orders (`Order`), each is answered by one on stdout (`Report`).
"""

from __future__ import annotations

import heapq
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from uuid import uuid4

import msgspec

from supervisor import wire
from supervisor.wire import Action, EndpointStatus, Step

INTERVAL_SEC = 3.0
GANG = 2
"""Pods of an instance."""
ARRIVING = 64
"""Supervisors that introduce themselves at the same time."""
RETRY_SEC = 0.5
STOP_SEC = 0.2
LOAD_SEC = 0.5
"""What the simulated engine needs to stop and to load."""
READ = 65536
GOLDEN = (5**0.5 - 1) / 2
HEAD_END = b"\r\n\r\n"


class Order(msgspec.Struct, kw_only=True, tag_field="order"):
    """Of these subclasses."""


class Grow(Order, tag="grow"):
    """Until so many supervisors have been introduced and heard."""

    to: int


class Measure(Order, tag="measure"):
    """Forget what was measured, go on for so long, and tell."""

    seconds: float


class Fail(Order, tag="fail"):
    """One engine of each of so many instances dies, all at one moment; done when all serve again."""

    instances: int


class Report(msgspec.Struct, kw_only=True):
    supervisors: int
    seconds: float
    """What the order took."""
    cpu_sec: float
    """Of this process, meanwhile."""
    answers: int = 0
    refused: int = 0
    """Answered by something else than 200, or not at all."""
    latencies_ms: list[float] = []
    """Of heartbeats, from the first byte sent to the whole answer read."""


class Stream:
    """One connection and the bytes that were read of it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.buffer = b""

    def read(self) -> bool:
        """False at its end."""
        try:
            data = self.socket.recv(READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.buffer += data
        return bool(data)

    def message(self) -> tuple[bytes, bytes] | None:
        """The first whole one: its head and its body."""
        end = self.buffer.find(HEAD_END)
        if end < 0:
            return None
        head = self.buffer[:end]
        length = _content_length(head)
        begin = end + len(HEAD_END)
        if len(self.buffer) < begin + length:
            return None
        body, self.buffer = self.buffer[begin : begin + length], self.buffer[begin + length :]
        return head, body


class Supervisor:
    """What one says, hears and answers. The engine behind it obeys at once, or after its time."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.ip = f"127.1.{number // 250}.{number % 250 + 1}"
        self.job_name = f"job-{number // GANG}"
        self.rank = number % GANG
        self.boot_id = str(uuid4())
        self.instance_id = number // GANG + 1
        self.epoch = 1
        self.term = 0
        self.sequence = 0
        self.step = Step.DONE
        self.status = EndpointStatus.NORMAL
        self.run_id: str | None = None
        self.since = time.monotonic()
        self.is_known = False
        self.is_heard = False
        self.sent_at = 0.0
        self.waits_for = ""
        """The route whose answer is outstanding."""
        self.wanted: list[tuple[str, msgspec.Struct]] = []
        self.stream: Stream | None = None

    # --- to the controller ---------------------------------------------------------------------------------

    def beat(self) -> None:
        """The timer of the heartbeat, or news that need one at once."""
        self.say(*(("heartbeat", self._heartbeat()) if self.is_known else ("reregister", self._introduction())))

    def say(self, route: str, message: msgspec.Struct) -> None:
        if self.waits_for:
            # What changes while a heartbeat is under way needs another one, and the newest says it all.
            self.wanted = [(other, body) for other, body in self.wanted if (other, route) != ("heartbeat",) * 2]
            self.wanted.append((route, message))
            return
        body = wire.encode(message)
        head = (
            f"POST /controller/{route} HTTP/1.1\r\nHost: 127.0.0.1:{self.fleet.controller[1]}\r\nAccept: */*\r\n"
            "Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        self.waits_for, self.sent_at = route, time.perf_counter()
        try:
            connection = self.stream.socket if self.stream else self._connected()
            # In two parts, as httpx does.
            connection.send(head)
            connection.send(body)
        except OSError:
            self.lost()

    def _connected(self) -> socket.socket:
        connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.bind((self.ip, 0))
        connection.connect(self.fleet.controller)
        connection.setblocking(False)
        self.stream = Stream(connection)
        self.fleet.watch(connection.fileno(), self.readable)
        return connection

    def readable(self) -> None:
        assert self.stream is not None
        is_open = self.stream.read()
        if (answer := self.stream.message()) is not None:
            head, body = answer
            if b"connection: close" in head.lower():
                self._close()
            self._answered(head[9:12] == b"200", body)
        elif not is_open:
            self.lost()

    def lost(self) -> None:
        """Without an answer: whatever was asked is asked again with the next heartbeat."""
        self._close()
        if self.waits_for:
            self._answered(False, b"")

    def _close(self) -> None:
        if self.stream is not None:
            self.fleet.forget(self.stream.socket)
            self.stream = None

    def _answered(self, is_good: bool, body: bytes) -> None:
        route, self.waits_for = self.waits_for, ""
        self.fleet.answered(route, is_good, time.perf_counter() - self.sent_at)
        if route == "reregister":
            self.is_known = is_good
            self.fleet.after(0 if is_good else RETRY_SEC, self.beat)
        elif route == "heartbeat":
            self.is_known, self.is_heard = is_good, self.is_heard or is_good
            if is_good:
                self.instance_id = wire.decode(wire.HeartbeatAnswer, body).instance_id
        if self.wanted:
            self.say(*self.wanted.pop(0))

    def _introduction(self) -> wire.ReregisterMsg:
        return wire.ReregisterMsg(
            job_name=self.job_name,
            model_name="simulated",
            role="union",
            pod_ip=self.ip,
            nm_port=str(self.fleet.port),
            parallel_config=wire.ParallelConfig(dp_size=GANG),
            nnodes=GANG,
            pod_uid=f"uid-{self.ip}",
            boot_id=self.boot_id,
            node_index=self.rank,
            protocol=wire.PROTOCOL,
            features=wire.FEATURES,
            epoch=self.epoch,
            term=self.term,
            instance_id=self.instance_id,
            endpoints=(wire.Endpoint(id=self.rank, ip=self.ip, business_port="8000", mgmt_port="8001"),),
            node_rank=self.rank,
        )

    def _heartbeat(self) -> wire.HeartbeatMsg:
        self.sequence += 1
        return wire.HeartbeatMsg(
            job_name=self.job_name,
            ins_id=self.instance_id,
            ip=self.ip,
            status={str(self.rank): self.status},
            nm_port=str(self.fleet.port),
            pod_uid=f"uid-{self.ip}",
            epoch=self.epoch,
            term=self.term,
            boot_id=self.boot_id,
            sequence=self.sequence,
            prepared=self.step is Step.PREPARED,
            step=self.step,
            run_id=self.run_id,
            progress_age_sec=round(time.monotonic() - self.since, 3),
        )

    def die(self) -> None:
        """Its engine does; reported at once."""
        self._become(Step.IDLE, EndpointStatus.ABNORMAL)
        self.say(
            "report_software_fault",
            wire.SoftwareFaultMsg(
                exception_type="exited",
                exception_message="the simulated engine was killed",
                engine_id=self.rank,
                engine_status=wire.EngineHealth.DEAD,
                pod_ip=self.ip,
                job_name=self.job_name,
                instance_id=self.instance_id,
                epoch=self.epoch,
                boot_id=self.boot_id,
            ),
        )

    # --- from the controller -------------------------------------------------------------------------------

    def asked(self, head: bytes, body: bytes, answer: Callable[[msgspec.Struct], None]) -> None:
        path = head.split(b" ", 2)[1]
        if path.startswith(b"/node-manager/status"):
            answer(self._view())
        elif path == b"/node-manager/engine-restart":
            self._commanded(wire.decode(wire.EngineRestartMsg, body), answer)
        else:
            raise NotImplementedError(f"no simulated supervisor is asked for {path!r}")

    def _commanded(self, message: wire.EngineRestartMsg, answer: Callable[[msgspec.Struct], None]) -> None:
        self.term, self.epoch, self.run_id = message.term, message.epoch or self.epoch, message.run_id
        if message.action is Action.PREPARE:
            self._become(Step.STOPPING, EndpointStatus.WAIT2START)
            self.fleet.after(STOP_SEC, lambda: self._prepared(answer))
        elif message.action is Action.START:
            self._become(Step.LOADING, EndpointStatus.INITIAL)
            self.fleet.after(LOAD_SEC, self._loaded)
            answer(self._done(Step.STARTING))
        else:
            raise NotImplementedError(f"nothing here makes a run end by {message.action}")

    def _prepared(self, answer: Callable[[msgspec.Struct], None]) -> None:
        self._become(Step.PREPARED, EndpointStatus.WAIT2START)
        answer(self._done(Step.PREPARED))

    def _loaded(self) -> None:
        self.run_id = None
        self._become(Step.DONE, EndpointStatus.NORMAL)
        self.beat()

    def _become(self, step: Step, status: EndpointStatus) -> None:
        self.step, self.status, self.since = step, status, time.monotonic()

    def _done(self, step: Step) -> wire.CommandAnswer:
        return wire.CommandAnswer(step=step, epoch=self.epoch, term=self.term, boot_id=self.boot_id, run_id=self.run_id)

    def _view(self) -> wire.NodeManagerStatus:
        return wire.NodeManagerStatus(
            status=self.status is EndpointStatus.NORMAL,
            instance_id=self.instance_id,
            epoch=self.epoch,
            boot_id=self.boot_id,
            term=self.term,
            operation=wire.OperationView(step=self.step, since="", run_id=self.run_id, epoch=self.epoch),
            endpoints=(wire.EndpointView(id=self.rank, status=self.status, state=str(self.step)),),
            prepared=self.step is Step.PREPARED,
        )


class Fleet:
    """The loop: what is readable, and what is due."""

    def __init__(self, controller_port: int) -> None:
        self.controller = ("127.0.0.1", controller_port)
        self.supervisors: list[Supervisor] = []
        self.answers = self.refused = 0
        self.latencies: list[float] = []
        self._by_ip: dict[str, Supervisor] = {}
        self._epoll = select.epoll()
        self._readable: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        # Every loopback address reaches it, and the address that was reached tells which supervisor was meant.
        listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
        self.port = listener.getsockname()[1]
        listener.setblocking(False)
        self.watch(listener.fileno(), lambda: self._accept(listener))

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        self._readable[descriptor] = readable
        self._epoll.register(descriptor, select.EPOLLIN)

    def forget(self, connection: socket.socket) -> None:
        del self._readable[connection.fileno()]
        connection.close()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), do))

    def answered(self, route: str, is_good: bool, took_sec: float) -> None:
        self.answers += 1
        self.refused += not is_good
        if route == "heartbeat":
            self.latencies.append(took_sec * 1e3)

    def run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else 0.1
            for descriptor, _ in self._epoll.poll(min(wait, 0.1)):
                if descriptor in self._readable:
                    self._readable[descriptor]()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def grow(self, to: int) -> None:
        arriving: list[Supervisor] = []

        def all_here() -> bool:
            arriving[:] = [one for one in arriving if not one.is_heard]
            while len(arriving) < ARRIVING and len(self.supervisors) < to:
                arriving.append(self._born())
            return not arriving

        self.run_until(all_here)

    def _born(self) -> Supervisor:
        """Its heartbeats have a place of their own in the interval, whoever else comes: multiples of the golden ratio
        fill it evenly."""
        number = len(self.supervisors)
        supervisor = Supervisor(self, number)
        self.supervisors.append(supervisor)
        self._by_ip[supervisor.ip] = supervisor
        supervisor.beat()
        place = INTERVAL_SEC * (number * GOLDEN % 1)
        self.after((place - time.monotonic()) % INTERVAL_SEC, lambda: self._beat(supervisor))
        return supervisor

    def _beat(self, supervisor: Supervisor) -> None:
        self.after(INTERVAL_SEC, lambda: self._beat(supervisor))
        if supervisor.is_heard:
            supervisor.beat()

    def fail(self, instances: int) -> None:
        gangs = [self.supervisors[first : first + GANG] for first in range(0, instances * GANG, GANG)]
        began = {id(gang): gang[0].epoch for gang in gangs}
        for gang in gangs:
            gang[0].die()
        self.run_until(
            lambda: all(
                one.epoch > began[id(gang)] and one.step is Step.DONE and not one.waits_for
                for gang in gangs
                for one in gang
            )
        )

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            supervisor = self._by_ip[connection.getsockname()[0]]
            stream = Stream(connection)
            self.watch(connection.fileno(), partial(self._serve, stream, supervisor))

    def _serve(self, stream: Stream, supervisor: Supervisor) -> None:
        is_open = stream.read()
        while (request := stream.message()) is not None:
            supervisor.asked(*request, lambda answer: _send(stream.socket, wire.encode(answer)))
        if not is_open:
            self.forget(stream.socket)

    def obey(self, order: Order) -> Report:
        began, cpu = time.monotonic(), time.process_time()
        self.answers, self.refused, self.latencies = 0, 0, []
        match order:
            case Grow(to=to):
                self.grow(to)
            case Measure(seconds=seconds):
                self.run_until(lambda: time.monotonic() >= began + seconds)
            case Fail(instances=instances):
                self.fail(instances)
        return Report(
            supervisors=len(self.supervisors),
            seconds=time.monotonic() - began,
            cpu_sec=time.process_time() - cpu,
            answers=self.answers,
            refused=self.refused,
            latencies_ms=self.latencies,
        )


def _send(connection: socket.socket, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    if connection.fileno() >= 0:
        connection.send(head.encode() + body)


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    return 0 if at < 0 else int(lowered[at + len(b"content-length:") :].split(b"\r\n", 1)[0])


def main(controller_port: int) -> None:
    fleet = Fleet(controller_port)
    orders: list[bytes] = []
    pending = b""

    def read() -> None:
        nonlocal pending
        if not (data := os.read(0, READ)):
            sys.exit(0)
        *lines, pending = (pending + data).split(b"\n")
        orders.extend(lines)

    fleet.watch(0, read)
    while True:
        fleet.run_until(lambda: bool(orders))
        order: Order = msgspec.json.decode(orders.pop(0), type=Grow | Measure | Fail)
        os.write(1, msgspec.json.encode(fleet.obey(order)) + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
