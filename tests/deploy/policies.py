"""Whom a NetworkPolicy lets in, and to which ports: what a network plugin makes of its rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_POLICIES = "default"
"""The namespace that the policies are in."""


def ports_reached(ingress: list[Mapping[str, Any]], labels: Mapping[str, str], namespace: str) -> set[str | None]:
    """By a pod with these labels. None: all."""
    of_namespace = {"kubernetes.io/metadata.name": namespace}
    return {
        port.get("port")
        for rule in ingress
        for peer in rule["from"]
        if _matches(peer.get("podSelector"), labels)
        and (
            _matches(peer["namespaceSelector"], of_namespace)
            if "namespaceSelector" in peer
            else namespace == OF_POLICIES
        )
        for port in rule["ports"]
    }


def _matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    expressions = selector.get("matchExpressions", [])
    assert {expression["operator"] for expression in expressions} <= {"In"}, "no other is read here"
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )
