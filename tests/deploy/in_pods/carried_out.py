"""Carries a rendered pod out in a pod of namespaces, as a kubelet and a container runtime would.

Commands, variables, volumes, users, capabilities, read-only roots, probes and grace periods are the manifest's. Not
carried out: images (the root is this machine's, `Image` says what lies in it beside that), limits, network policies,
seccomp profiles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.demo.kubelet import ContainerSpec
from controller.demo.kubelet_probe import HttpProbe
from controller.demo.pod import Pod
from tests.deploy.container import environment_of, ports_of
from tests.deploy.platforms import PlannedPod
from tests.deploy.rendered import Manifests

OFTEN = 10
"""Probes are asked so many times as often: a test needs not wait for their periods."""

# Arguments: directories to be opened, `--`, the number of mounts, for each of them source, target and options, then the
# command. A source named `memory` is a tmpfs, with its size among the options.
_SET_UP = """
while [ "$1" != -- ]; do chmod o+x "$1"; shift; done; shift
count=$1; shift
while [ $count -gt 0 ]; do
  if [ -d "$1" ] || [ "$1" = memory ]; then mkdir -p "$2"; fi
  if [ "$1" = memory ]; then mount -t tmpfs -o "$3" memory "$2"
  else mount --bind "$1" "$2"; mount -o "remount,bind,$3" "$2"; fi
  shift 3; count=$((count - 1))
done
exec "$@"
"""
_READ_ONLY_ROOT = 'mount -o remount,bind,ro /; mount -o remount,bind,ro /run; exec "$@"'


@dataclass(frozen=True)
class Image:
    """What an image brings: directories at their places, variables, and programs of this machine."""

    directories: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: Sequence[Path] = ()
    """Directories that anybody in the container can reach, also if they lie in somebody's home here."""


@dataclass(frozen=True)
class Given:
    """What is in the cluster beside the manifests: images, and what whoever deploys has brought."""

    images: Mapping[str, Image]
    secrets: Mapping[str, Mapping[str, str]]
    claims: Mapping[str, Path]
    hosts: Mapping[str, str]
    """What the cluster's name server knows: name of a Service -> address."""


@dataclass(frozen=True)
class CarriedOut:
    """One planned pod in one pod of namespaces."""

    planned: PlannedPod
    pod: Pod
    manifests: Manifests
    given: Given

    def init_containers(self) -> Iterator[tuple[str, Sequence[str]]]:
        """(name, command line) in their order; each has to end with 0 before the next."""
        for container in self.planned.spec.get("initContainers", ()):
            yield container["name"], self._command(container)

    def spec(self, name: str) -> ContainerSpec:
        container = self.planned.container(name)
        image = self.given.images[container["image"]]
        wanted = environment_of(self.planned, name, address=self.pod.address, uid=f"uid-of-{self.planned.name}")
        return ContainerSpec(
            self._command(container),
            environment={**image.variables, "HOSTNAME": self.planned.name, **wanted},
            grace_period_sec=self.planned.spec["terminationGracePeriodSeconds"],
            startup=_patient(_probe(container["startupProbe"], ports_of(container))),
            readiness=_probe(container["readinessProbe"], ports_of(container)),
            liveness=_strict(_probe(container["livenessProbe"], ports_of(container))),
        )

    def _command(self, container: Mapping[str, Any]) -> list[str]:
        mounts = [*self._image_mounts(container), *self._volume_mounts(container), self._hosts()]
        # A volume on /tmp hides where the sources of the others may lie here.
        mounts.sort(key=lambda mount: self.pod.volume.is_relative_to(mount[1]))
        words = [word for mount in mounts for word in mount]
        command = [*_as_user(self.planned.spec["securityContext"], container["securityContext"]), *container["command"]]
        if container["securityContext"].get("readOnlyRootFilesystem"):
            command = ["sh", "-ec", _READ_ONLY_ROOT, "sh", *command]
        closed = _closed_to_others(self.given.images[container["image"]].programs)
        return ["sh", "-ec", _SET_UP, "sh", *closed, "--", str(len(mounts)), *words, *command]

    def _image_mounts(self, container: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        for target, directory in self.given.images[container["image"]].directories.items():
            yield str(directory), target, "ro"

    def _volume_mounts(self, container: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        volumes = {volume["name"]: volume for volume in self.planned.spec["volumes"]}
        for mount in container["volumeMounts"]:
            source, options = self._volume(volumes[mount["name"]])
            yield source, mount["mountPath"], "ro" if mount.get("readOnly") else options

    def _volume(self, volume: Mapping[str, Any]) -> tuple[str, str]:
        """(directory of this machine, mount options). An emptyDir stays with the pod, over lives of its containers."""
        directory = self.pod.volume / "volumes" / volume["name"]
        group = self.planned.spec["securityContext"]["fsGroup"]
        if "persistentVolumeClaim" in volume:
            claim = self.given.claims[volume["persistentVolumeClaim"]["claimName"]]
            _give_to_group(claim, group)
            return str(claim), "rw"
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            return "memory", f"mode=1777,size={volume['emptyDir']['sizeLimit'].removesuffix('i').lower()}"
        if not directory.exists():
            directory.mkdir(parents=True)
            _write_projected(directory, self._files(volume))
            _give_to_group(directory, group)
        return str(directory), "rw"

    def _files(self, volume: Mapping[str, Any]) -> Mapping[str, str]:
        if "configMap" in volume:
            data: Mapping[str, str] = self.manifests.one("ConfigMap", volume["configMap"]["name"])["data"]
            return data
        return self.given.secrets[volume["secret"]["secretName"]] if "secret" in volume else {}

    def _hosts(self) -> tuple[str, str, str]:
        path = self.pod.volume / "hosts"
        lines = [f"{address} {name}" for name, address in self.given.hosts.items()]
        path.write_text("\n".join(["127.0.0.1 localhost", f"{self.pod.address} {self.planned.name}", *lines, ""]))
        return str(path), "/etc/hosts", "ro"


def _closed_to_others(paths: Sequence[Path]) -> list[str]:
    """Directories on the way to these. Only of the root file system: of that a container has its own copy."""
    root = Path("/").stat().st_dev
    on_the_way = {parent for path in paths for parent in (path, *path.parents)}
    found = {parent: parent.stat() for parent in sorted(on_the_way)}
    return [str(path) for path, seen in found.items() if not seen.st_mode & 0o001 and seen.st_dev == root]


def _write_projected(directory: Path, files: Mapping[str, str]) -> None:
    """As a kubelet does it: links through `..data`, so that all files change at once."""
    if not files:
        return
    data = directory / "..2026_11_30"
    data.mkdir()
    (directory / "..data").symlink_to(data.name)
    for name, text in files.items():
        (data / name).write_text(text)
        (directory / name).symlink_to(f"..data/{name}")


def _give_to_group(path: Path, group: int) -> None:
    for found in (path, *path.rglob("*")):
        if not found.is_symlink():
            os.chown(found, 0, group)
            found.chmod(0o2770 if found.is_dir() else 0o440)


def _as_user(pod: Mapping[str, Any], container: Mapping[str, Any]) -> list[str]:
    user, group = pod["runAsUser"], pod["runAsGroup"]
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["allowPrivilegeEscalation"] is False
    identity = [f"--reuid={user}", f"--regid={group}", f"--groups={group},{pod['fsGroup']}"]
    return ["setpriv", *identity, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"]


def _probe(probe: Mapping[str, Any], ports: Mapping[str, int]) -> HttpProbe:
    request = probe["httpGet"]
    assert probe.keys() <= {"httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold"}, "what is not asked here"
    assert request.keys() <= {"path", "port", "scheme"}
    return HttpProbe(
        port=ports[request["port"]],
        path=request["path"],
        scheme=request.get("scheme", "HTTP").lower(),
        period_sec=probe["periodSeconds"] / OFTEN,
        timeout_sec=probe.get("timeoutSeconds", 1),
        failure_threshold=probe.get("failureThreshold", 3),
    )


def _patient(startup: HttpProbe) -> HttpProbe:
    """For as long as the manifest says, however often it is asked."""
    return replace(startup, failure_threshold=startup.failure_threshold * OFTEN)


def _strict(liveness: HttpProbe) -> HttpProbe:
    """One failure ends the container: podvisor has to answer every time, not once in three."""
    return replace(liveness, failure_threshold=1)
