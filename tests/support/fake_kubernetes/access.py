"""Who may do what: tokens, and roles as the shipped manifests write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.fake_kubernetes.errors import ApiError

POD_ACCESS = Path(__file__).parents[3] / "deploy" / "kubernetes" / "components" / "pod-access" / "role.yaml"


@dataclass(frozen=True)
class Rule:
    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]


def shipped_rules() -> tuple[Rule, ...]:
    """Of deploy/'s role for the controller."""
    role: dict[str, Any] = yaml.safe_load(POD_ACCESS.read_text())
    return tuple(
        Rule(frozenset(rule["apiGroups"]), frozenset(rule["resources"]), frozenset(rule["verbs"]))
        for rule in role["rules"]
    )


@dataclass
class Access:
    tokens: dict[str, str] = field(default_factory=lambda: {"admin": "admin"})
    """Token -> user."""
    roles: dict[str, Sequence[Rule]] = field(default_factory=dict)
    """User -> what it may do; one without a role may do everything."""
    used: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """User, verb and resource of each request that was let in."""

    def user(self, authorization: str | None) -> str:
        token = (authorization or "").removeprefix("Bearer ")
        if token not in self.tokens:
            raise ApiError(401, "Unauthorized")
        return self.tokens[token]

    def check(self, user: str, verb: str, group: str, resource: str) -> None:
        rules = self.roles.get(user)
        allowed = rules is None or any(
            group in rule.groups and resource in rule.resources and verb in rule.verbs for rule in rules
        )
        if not allowed:
            raise ApiError(403, f'{resource} is forbidden: User "{user}" cannot {verb} resource "{resource}"')
        self.used[user, verb, resource] += 1

    def used_by(self, user: str) -> set[tuple[str, str]]:
        return {(verb, resource) for who, verb, resource in self.used if who == user}
