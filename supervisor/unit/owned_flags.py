"""Flags that a launcher sets itself: a second opinion in [Engine.Args] or ExtraArgs is a mistake (design 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisor.unit.model import Engine, Launcher

OWNED_FLAGS: Mapping[Launcher, Mapping[str, str]] = {
    Launcher.LLAMA_SERVER: {
        "host": "the launcher listens where the probes look",
        "port": "set BasePort",
        "rpc": "the launcher names the other nodes' workers",
        "model": "set Model",
        "m": "set Model",
        "alias": "set ServedModelName",
        "a": "set ServedModelName",
    },
}
"""Launcher -> flag without dashes -> what to do instead."""


def trespasses(engine: Engine) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path below [Engine], message) of every flag that is the launcher's."""
    owned = OWNED_FLAGS.get(engine.launcher, {})
    for name, _ in engine.args:
        if name in owned:
            yield ("Args", name), f"the launcher sets --{name} itself: {owned[name]}"
    for argument in engine.extra_args:
        flag = argument.partition("=")[0]
        if flag.startswith("-") and flag.lstrip("-") in owned:
            yield ("ExtraArgs",), f"the launcher sets {flag} itself: {owned[flag.lstrip('-')]}"
