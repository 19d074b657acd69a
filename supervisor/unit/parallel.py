"""How many ways an engine is split, as its own flags say: the launchers vllm and sglang, which know these flags.

For the other launchers `[parallel]` of the settings says it. vLLM 0.32.0, `engine/arg_utils.py`: every data-parallel
rank is a whole world of tensor x pipeline x prefill-context ranks. SGLang 0.5.23, `arg_groups/fields/parallel.py`:
attention data parallelism divides the tensor-parallel world and adds no rank to it.
"""

from __future__ import annotations

import re

import msgspec

from supervisor.unit.flags import Flag, is_on, last_of
from supervisor.unit.model import DataParallel, Engine, Launcher
from supervisor.unit.toml_lines import KeyPath


class Unreadable(Exception):
    """A size that is no number; `path` is below [Engine]."""

    def __init__(self, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class Sizes(msgspec.Struct, frozen=True):
    dp: int = 1
    """Data-parallel ranks of one server."""
    tp: int = 1
    pp: int = 1
    pcp: int = 1
    ep: int = 1
    attention_only: bool = False
    """The data-parallel ranks share one tensor-parallel world (SGLang's attention data parallelism)."""

    @property
    def world(self) -> int:
        """Processes with a device, over all nodes."""
        return self.tp * self.pp * self.pcp * (1 if self.attention_only else self.dp)


def sizes_of(engine: Engine) -> Sizes | None:
    """None where the launcher does not know the engine's flags. Raise Unreadable."""
    match engine.launcher:
        case Launcher.VLLM:
            return _vllm(engine)
        case Launcher.SGLANG:
            return _sglang(engine)
        case Launcher.EXEC | Launcher.LLAMA_SERVER:
            return None


def independent(engine: Engine, sizes: Sizes) -> bool:
    """Every pod runs a server of its own that knows nothing of the others (design 8: dense models, external mode)."""
    return engine.data_parallel is DataParallel.EXTERNAL and (sizes.dp == 1 or engine.launcher is Launcher.SGLANG)


def ranks_of_gang(engine: Engine, sizes: Sizes, nnodes: int) -> int:
    """Data-parallel ranks of the whole instance, independent servers counted as such."""
    return sizes.dp * nnodes * engine.endpoints if independent(engine, sizes) else sizes.dp


def has_one_server(engine: Engine) -> bool:
    """Whether node rank 0 alone serves HTTP, for all data-parallel ranks."""
    if engine.launcher not in (Launcher.VLLM, Launcher.SGLANG):
        return False
    return engine.data_parallel in (DataParallel.NONE, DataParallel.INTERNAL)


def _vllm(engine: Engine) -> Sizes:
    dp = _size(last_of(engine, "data-parallel-size", "dp"))
    tp = _size(last_of(engine, "tensor-parallel-size", "tp"))
    pcp = _size(last_of(engine, "prefill-context-parallel-size", "pcp"))
    pp = _size(last_of(engine, "pipeline-parallel-size", "pp"))
    ep = dp * tp * pcp if is_on(engine, "enable-expert-parallel", "ep") else 1
    return Sizes(dp=dp, tp=tp, pp=pp, pcp=pcp, ep=ep)


def _sglang(engine: Engine) -> Sizes:
    replicas = _size(last_of(engine, "dp-size", "data-parallel-size", "dp"))
    attention = _size(last_of(engine, "attn-dp-size", "attention-data-parallel-size"))
    if is_on(engine, "enable-dp-attention"):  # the older spelling: --dp-size N --enable-dp-attention
        attention = max(attention, replicas)
    return Sizes(
        dp=attention if attention > 1 else replicas,
        tp=_size(last_of(engine, "tp-size", "tensor-parallel-size", "tp")),
        pp=_size(last_of(engine, "pp-size", "pipeline-parallel-size", "pp")),
        ep=_size(last_of(engine, "ep-size", "expert-parallel-size", "ep")),
        attention_only=attention > 1,
    )


def _size(flag: Flag | None) -> int:
    if flag is None:
        return 1
    value = flag.value
    if re.fullmatch(r"0*[1-9][0-9]{0,8}", str(value)) is None:
        raise Unreadable(flag.path, f"found {value!r} for {flag.words}, expected a whole number of at least 1")
    return int(str(value))
