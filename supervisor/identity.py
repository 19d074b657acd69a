"""Who this pod is when nobody says so: what the platform put into the environment (design 8, Identity).

A pod's ordinal is taken from variables that carry it, never parsed out of a name: a Deployment's random suffix
can look like a number.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from supervisor.settings_file import ENVIRONMENT, ConfigurationError, Problem

GROUP_SIZE = "LWS_GROUP_SIZE"
LEADER_ADDRESS = "LWS_LEADER_ADDRESS"
POD_INDEX = "POD_INDEX"
"""The label apps.kubernetes.io/pod-index, by the downward API: the manifests set it for StatefulSets."""
NODE_INDEXES = ("LWS_WORKER_INDEX", "JOB_COMPLETION_INDEX", "VC_TASK_INDEX")


class Pod(msgspec.Struct, frozen=True):
    """What the environment says about this pod."""

    name: str
    namespace: str
    uid: str | None
    node_name: str | None
    ip: str | None
    group: str | None
    """Name and number of the LeaderWorkerSet group."""
    group_size: int | None
    index_in_group: int | None
    ordinal: int | None
    """In a StatefulSet."""

    def node_index(self, nnodes: int) -> int | None:
        """Which of the instance's pods this is; None when the platform does not number them.

        An instance of one pod has no other: the number that its Job or set gave it tells instances apart, not pods.
        """
        if self.index_in_group is not None:
            return 0 if nnodes == 1 else self.index_in_group
        return None if self.ordinal is None else self.ordinal % nnodes

    def job_name(self, nnodes: int) -> str | None:
        """The instance that this pod belongs to; None when pods of one instance cannot be told from others."""
        if nnodes == 1:
            return self.name
        if self.group is not None:
            return self.group
        if self.ordinal is not None and self.name.endswith(f"-{self.ordinal}"):
            return f"{self.name.removesuffix(f'-{self.ordinal}')}-{self.ordinal // nnodes}"
        return None


def pod_of(environment: Mapping[str, str]) -> Pod:
    """Raise ConfigurationError for a number that is none."""
    indexes = (_number(environment, variable) for variable in NODE_INDEXES)
    leader = environment.get(LEADER_ADDRESS)
    return Pod(
        name=environment.get("POD_NAME") or environment.get("HOSTNAME") or "localhost",
        namespace=environment.get("POD_NAMESPACE") or "default",
        uid=environment.get("POD_UID") or None,
        node_name=environment.get("NODE_NAME") or None,
        ip=environment.get("POD_IP") or None,
        # The leader's host name is the group's name: <set>-<group>.<service>.<namespace>
        group=leader.partition(".")[0] if leader else None,
        group_size=_number(environment, GROUP_SIZE),
        index_in_group=next((index for index in indexes if index is not None), None),
        ordinal=_number(environment, POD_INDEX),
    )


def _number(environment: Mapping[str, str], variable: str) -> int | None:
    written = environment.get(variable)
    if not written:
        return None
    if not written.isdecimal():
        message = f"found {written!r}, expected a whole number"
        raise ConfigurationError([Problem(ENVIRONMENT, None, variable, message)])
    return int(written)
