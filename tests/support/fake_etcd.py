"""A small etcd behind the JSON gateway, on the memory network: its leases end by the test's clock.

It keeps the newest value of each key, compares, and lets leases end; it proves nothing about the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import trio
from quart import Response, request
from quart_trio import QuartTrio

from controller.store.etcd_messages import KeyValue
from tests.support.memory_network import MemoryNetwork

HOST, PORT = "etcd", 2379
LOOK_SEC = 0.5
"""So often the real one looks for leases that are over."""


class _Txn(msgspec.Struct):
    compare: list[dict[str, object]] = []
    success: list[dict[str, dict[str, object]]] = []


Body = TypeVar("Body")


@dataclass(eq=False)
class FakeEtcd:
    network: MemoryNetwork
    kept: dict[bytes, KeyValue] = field(default_factory=dict)
    leases: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Its length, and when it is over."""
    revision: int = 1
    refusal: tuple[int, int, str] | None = None
    """Status, gRPC code and words, of every write."""
    transactions: int = 0
    swallowed: int = 0
    """So many transactions yet are carried out and never answered."""

    def start(self) -> None:
        self.network.listen(HOST, PORT, self._application())

    def stop(self) -> None:
        """It keeps what it has, and leases go on when it is back, as the real one does."""
        self.network.close(HOST, PORT)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{PORT}"

    async def run(self) -> None:
        """Ends leases, until cancelled."""
        while True:
            await trio.sleep(LOOK_SEC)
            for lease, (_, until) in list(self.leases.items()):
                if trio.current_time() >= until:
                    self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        self.leases.pop(lease, None)
        for key in [key for key, found in self.kept.items() if found.lease == lease]:
            self.revision += 1
            del self.kept[key]

    def has(self, part: str, words: str) -> bool:
        return any(words.encode() in value for value in self.values(part))

    def values(self, part: str) -> list[bytes]:
        return [found.value for key, found in sorted(self.kept.items()) if part.encode() in key]

    def _application(self) -> QuartTrio:
        app = QuartTrio("fake-etcd")

        @app.post("/v3/lease/grant")
        async def grant() -> Response:
            wanted = (await _body(dict[str, int]))["TTL"]
            self.revision += 1
            self.leases[self.revision] = (wanted, trio.current_time() + wanted)
            return _json({"ID": str(self.revision), "TTL": str(wanted)})

        @app.post("/v3/lease/keepalive")
        async def keep_alive() -> Response:
            lease = (await _body(dict[str, int]))["ID"]
            if lease not in self.leases:
                return _json({"result": {"ID": str(lease)}})
            length, _ = self.leases[lease]
            self.leases[lease] = (length, trio.current_time() + length)
            return _json({"result": {"ID": str(lease), "TTL": str(length)}})

        @app.post("/v3/lease/revoke")
        async def revoke() -> Response:
            lease = (await _body(dict[str, int]))["ID"]
            if lease not in self.leases:
                return _json({"error": "requested lease not found", "code": 5}, 404)
            self.end_lease(lease)
            return _json({})

        @app.post("/v3/kv/range")
        async def find() -> Response:
            asked = await _body(_Range)
            end = asked.range_end or asked.key + b"\0"
            found = [self.kept[key] for key in sorted(self.kept) if asked.key <= key < end]
            limit = asked.limit or len(found)
            return _json({"kvs": found[:limit], "more": len(found) > limit})

        @app.post("/v3/kv/txn")
        async def transact() -> Response:
            self.transactions += 1
            if self.refusal:
                status, code, words = self.refusal
                return _json({"error": words, "code": code}, status)
            asked = await _body(_Txn)
            succeeded = all(self._holds(msgspec.convert(one, _Compare)) for one in asked.compare)
            if succeeded:
                self._carry_out(asked.success)
            if self.swallowed:
                self.swallowed -= 1
                await trio.sleep_forever()
            return _json({"header": {"revision": str(self.revision)}, "succeeded": succeeded})

        return app

    def _holds(self, compare: _Compare) -> bool:
        found = self.kept.get(compare.key)
        if compare.lease is not None:
            return compare.lease == (found.lease if found else 0)
        return compare.mod_revision == (found.mod_revision if found else 0)

    def _carry_out(self, operations: list[dict[str, dict[str, object]]]) -> None:
        self.revision += 1
        for operation in operations:
            ((what, body),) = operation.items()
            change = msgspec.convert(body, KeyValue, builtin_types=())
            if what == "request_delete_range":
                self.kept.pop(change.key, None)
                continue
            self.kept[change.key] = KeyValue(change.key, change.value, self.revision, change.lease)


class _Range(msgspec.Struct):
    key: bytes
    range_end: bytes = b""
    limit: int = 0


class _Compare(msgspec.Struct):
    key: bytes
    lease: int | None = None
    mod_revision: int | None = None


async def _body(kind: type[Body]) -> Body:
    return msgspec.json.decode(await request.get_data(as_text=False), type=kind, strict=False)


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, content_type="application/json")
