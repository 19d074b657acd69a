"""The pods of tests/pods, for manifests that are carried out in them."""

from tests.pods.conftest import kubelet, namespaces, pods
from tests.support.installed_engines import engines

__all__ = ["engines", "kubelet", "namespaces", "pods"]
