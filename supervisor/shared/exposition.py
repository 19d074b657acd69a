"""What was measured, in Prometheus' text format. Importing this imports prometheus-client, which takes a while."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


def exposition(collector: Collector, accept: str | None) -> tuple[bytes, str]:
    """The text and its content type, for who sends this header Accept; with what the kernel says of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept or "")
    return encode(registry), content_type
