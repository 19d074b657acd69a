"""The parts of etcd's v3 JSON messages that are used here, in its own words."""

from __future__ import annotations

import msgspec


class KeyValue(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0


class Found(msgspec.Struct, frozen=True):
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False


class Granted(msgspec.Struct, frozen=True):
    ID: int
    TTL: int


class KeptAlive(msgspec.Struct, frozen=True):
    TTL: int = 0


class Kept(msgspec.Struct, frozen=True):
    result: KeptAlive


class Outcome(msgspec.Struct, frozen=True):
    succeeded: bool = False


class Authenticated(msgspec.Struct, frozen=True):
    token: str


class GatewayError(msgspec.Struct, frozen=True):
    error: str
    code: int


class Compare(msgspec.Struct, frozen=True, omit_defaults=True):
    target: str
    key: bytes
    mod_revision: int | None = None
    lease: int | None = None


class Put(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes
    lease: int = 0


class Delete(msgspec.Struct, frozen=True):
    key: bytes


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """On one key."""

    request_put: Put | None = None
    request_delete_range: Delete | None = None

    @property
    def key(self) -> bytes:
        return self._one.key

    @property
    def size(self) -> int:
        return len(self.key) + (len(self.request_put.value) if self.request_put else 0)

    @property
    def _one(self) -> Put | Delete:
        one = self.request_put or self.request_delete_range
        assert one is not None, "made by `put` or `delete`"
        return one


def unchanged(key: bytes, revision: int) -> Compare:
    """The key was changed last in `revision`; 0: there is none."""
    return Compare("MOD", key, mod_revision=revision)


def hangs_on(key: bytes, lease: int) -> Compare:
    """The key is there, and goes with this lease."""
    return Compare("LEASE", key, lease=lease)


def put(key: bytes, value: bytes, lease: int = 0) -> Operation:
    return Operation(request_put=Put(key, value, lease))


def delete(key: bytes) -> Operation:
    return Operation(request_delete_range=Delete(key))
