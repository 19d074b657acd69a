"""Flags that a launcher sets itself: a second opinion in [Engine.Args] or ExtraArgs is a mistake (design 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisor.unit.flags import flags_of
from supervisor.unit.model import Engine, Launcher
from supervisor.unit.toml_lines import KeyPath

_LISTENING = {"host": "the launcher listens where the probes look", "port": "set BasePort"}
_NODES = "it comes from the pod's place in its instance"
_MEETING = "the controller gives the ranks an address and a port of their own for every epoch"
_SPREAD = "set DataParallel and LocalRanks"

OWNED_FLAGS: Mapping[Launcher, Mapping[str, str]] = {
    Launcher.LLAMA_SERVER: {
        **_LISTENING,
        "rpc": "the launcher names the other nodes' workers",
        "model": "set Model",
        "m": "set Model",
        "alias": "set ServedModelName",
        "a": "set ServedModelName",
    },
    # vLLM 0.32.0: engine/arg_utils.py and entrypoints/launchers/cli_args.py, with the short spellings.
    Launcher.VLLM: {
        **_LISTENING,
        "uds": "the launcher listens where the probes look",
        "model": "set Model",
        "served-model-name": "set ServedModelName",
        **dict.fromkeys(("nnodes", "n", "node-rank", "r"), _NODES),
        "headless": "every rank but the one that serves is headless",
        **dict.fromkeys(("master-addr", "master-port"), _MEETING),
        **dict.fromkeys(("data-parallel-address", "dpa", "data-parallel-rpc-port", "dpp"), _MEETING),
        **dict.fromkeys(("data-parallel-size-local", "dpl", "data-parallel-rank", "dpn"), _SPREAD),
        **dict.fromkeys(("data-parallel-start-rank", "dpr", "data-parallel-hybrid-lb", "dph"), _SPREAD),
        **dict.fromkeys(("data-parallel-external-lb", "dpe"), _SPREAD),
        **dict.fromkeys(("data-parallel-multi-port-external-lb", "dpm"), _SPREAD),
    },
    # SGLang 0.5.23: arg_groups/fields/{parallel,serving,disagg}.py.
    Launcher.SGLANG: {
        **_LISTENING,
        "model-path": "set Model",
        "model": "set Model",
        "served-model-name": "set ServedModelName",
        **dict.fromkeys(("nnodes", "node-rank"), _NODES),
        **dict.fromkeys(("dist-init-addr", "nccl-init-addr", "nccl-port"), _MEETING),
        "disaggregation-mode": "set Role",
        "disaggregation-bootstrap-port": "set BootstrapPort",
    },
}
"""Launcher -> flag without dashes -> what to do instead."""


def trespasses(engine: Engine) -> Iterator[tuple[KeyPath, str]]:
    """(path below [Engine], message) of every flag that is the launcher's."""
    owned = OWNED_FLAGS.get(engine.launcher, {})
    for flag in flags_of(engine):
        if flag.name in owned:
            yield flag.path, f"the launcher sets {flag.words} itself: {owned[flag.name]}"
