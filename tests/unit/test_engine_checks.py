"""What goes together in an engine's table, and with the settings of its pod; as `podvisor verify` says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.agreement import one_server, parallel_config
from supervisor.cli.verify import verify
from supervisor.configuration import Options, configure
from supervisor.settings import load_settings
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.model import Engine, Launcher
from supervisor.unit.parallel import Sizes, Unreadable, sizes_of
from supervisor.unit.parse import load_units
from supervisor.wire import ParallelConfig

VLLM = '[Engine]\nLauncher = "vllm"\nModel = "m"\n'
SGLANG = '[Engine]\nLauncher = "sglang"\nModel = "m"\n'
EXEC = '[Service]\nExecStart = ["true"]\n[Engine]\n'


def written(directory: Path, engine: str, settings: str = "") -> tuple[Path, Path]:
    units, config = directory / "units", directory / "podvisor.toml"
    units.mkdir()
    (units / "engine.toml").write_text(engine)
    config.write_text(settings)
    return units, config


def complaints(directory: Path, engine: str, settings: str = "", **variables: str) -> list[str]:
    units, config = written(directory, engine, settings)
    report = verify([units], config, {"PATH": "/bin:/usr/bin", **variables}, elsewhere=True)  # no vLLM is needed here
    return [str(problem).replace(f"{units}/", "") for problem in report.problems]


def nodes(count: int, more: str = "") -> str:
    return f"[supervisor]\nnnodes = {count}\n{more}"


# --- what the file alone shows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ('[Engine]\nLauncher = "vllm"\n', ["engine.toml:1: Engine.Model: the launcher vllm needs the path or the"
                                           " name of a model"]),
        (VLLM + "Args = { port = 1, headless = true, data-parallel-size-local = 2 }", [
            "engine.toml:4: Engine.Args.port: the launcher sets --port itself: set BasePort",
            "engine.toml:4: Engine.Args.headless: the launcher sets --headless itself:"
            " every rank but the one that serves is headless",
            "engine.toml:4: Engine.Args.data-parallel-size-local: the launcher sets --data-parallel-size-local"
            " itself: set DataParallel and LocalRanks",
        ]),
        (VLLM + 'ExtraArgs = ["--node_rank=1", "-dpr", "2", "-tp", "2", "--seed", "-1"]', [
            "engine.toml:4: Engine.ExtraArgs: the launcher sets --node_rank itself: it comes from the pod's place in"
            " its instance",
            "engine.toml:4: Engine.ExtraArgs: the launcher sets -dpr itself: set DataParallel and LocalRanks",
        ]),
        (VLLM + 'ExtraArgs = ["--api-server-count", "2"]', [
            "engine.toml:4: Engine.ExtraArgs: write --api-server-count into Args: headless ranks refuse it,"
            " and the launcher leaves it out",
        ]),
        (VLLM + "LocalRanks = 2", ["engine.toml:4: Engine.LocalRanks: it counts data-parallel ranks:"
                                   " set DataParallel"]),
        (SGLANG + 'ServedModelName = ["a", "b"]\nDataParallel = "hybrid"', [
            "engine.toml:4: Engine.ServedModelName: SGLang serves its model under one name",
            'engine.toml:5: Engine.DataParallel: SGLang has no such mode: "internal" is one server,'
            ' "external" a server of its own in every pod',
        ]),
        (SGLANG + "Args = { dist-init-addr = 'a:1', disaggregation-mode = 'decode' }", [
            "engine.toml:4: Engine.Args.dist-init-addr: the launcher sets --dist-init-addr itself:"
            " the controller gives the ranks an address and a port of their own for every epoch",
            "engine.toml:4: Engine.Args.disaggregation-mode: the launcher sets --disaggregation-mode itself:"
            " set Role",
        ]),
        (EXEC + 'DataParallel = "internal"\nLocalRanks = 2', [
            "engine.toml:4: Engine.DataParallel: the launcher exec has no flags for it: set [parallel] dp_size",
            "engine.toml:5: Engine.LocalRanks: the launcher exec has no flags for it",
        ]),
    ],
)  # fmt: skip
def test_mistakes_in_the_file(tmp_path: Path, engine: str, words: list[str]) -> None:
    assert complaints(tmp_path, engine) == words


# --- what the pod's settings show --------------------------------------------------------------------------------

KV = "{ kv_connector = 'NixlConnector', kv_role = '%s' }"


@pytest.mark.parametrize(
    ("engine", "settings", "words"),
    [
        # sizes
        (VLLM + "Args = { data-parallel-size = 2 }", "", "DataParallel: the flags ask for 2 data-parallel ranks"),
        (VLLM + "Args = { tensor-parallel-size = 3 }", nodes(2), "Args: 3 ranks (tensor, pipeline, data parallel)"
                                                                 " cannot be split over 2 nodes"),
        (VLLM + "DataParallel = 'internal'\nArgs = { data-parallel-size = 3, tensor-parallel-size = 2 }", nodes(2),
         "Args: 3 data-parallel ranks cannot be split over 2 nodes"),
        (VLLM + "DataParallel = 'internal'\nArgs = { data-parallel-size = 2, tensor-parallel-size = 3 }", nodes(3),
         "Args: 3 nodes cannot be shared out among 2 data-parallel ranks"),
        (VLLM + "DataParallel = 'external'\nArgs = { data-parallel-size = 4 }", nodes(2),
         "DataParallel: every server is one data-parallel rank: 4 ranks need as many, and there are 2"),
        (VLLM + "DataParallel = 'hybrid'\nArgs = { data-parallel-size = 2, tensor-parallel-size = 2 }", nodes(4),
         "DataParallel: every node serves ranks of its own, and 2 are too few for 4 nodes"),
        (VLLM + "DataParallel = 'internal'\nLocalRanks = 4\nArgs = { data-parallel-size = 4 }", nodes(2),
         "LocalRanks: found 4, but by its flags and the number of nodes every node has 2 data-parallel ranks"),
        (VLLM + 'ExtraArgs = ["-tp", "x"]', "", "ExtraArgs: found 'x' for -tp, expected a whole number of at least 1"),
        (VLLM + "Args = { tensor-parallel-size = 8 }", "[parallel]\ntp_size = 4",
         "Args: [parallel] tp_size of the settings is 4, the engine's flags say 8"),
        (SGLANG + "DataParallel = 'internal'\nArgs = { dp-size = 2, tp-size = 2 }", nodes(2),
         "Args: over several nodes SGLang has attention data parallelism only"),
        # who else would place ranks
        (VLLM + "Args = { distributed-executor-backend = 'ray' }", "",
         "Args.distributed-executor-backend: Ray places and restarts ranks itself"),
        # ports
        (VLLM + "BasePort = 29550\nArgs = { tensor-parallel-size = 2 }", nodes(2),
         "BasePort: 29550 is one of the rendezvous_ports of the settings, 29500 to 29599"),
        (SGLANG + "DataParallel = 'internal'\nArgs = { attn-dp-size = 2, tp-size = 2 }",
         nodes(2, 'rendezvous_ports = "20000-20011"'),
         "Launcher: the rendezvous_ports of the settings, 20000 to 20011, leave 6 for an epoch: sglang needs 7 here"),
        # roles
        (VLLM + "Role = 'prefill'\nArgs = { kv-transfer-config = { kv_role = 'kv_both' } }", "",
         "Role: 'prefill' is not supervisor.role of the settings, which is 'union'"),
        (EXEC + "Role = 'decode'", "[supervisor]\nrole = 'prefill'",
         "Role: 'decode' is not supervisor.role of the settings, which is 'prefill'"),
        (VLLM, "[supervisor]\nrole = 'decode'",
         "Role: decode needs kv-transfer-config in Args, with kv_role kv_consumer or kv_both"),
        (VLLM + f"Args = {{ kv-transfer-config = {KV % 'kv_consumer'} }}", "[supervisor]\nrole = 'prefill'",
         "Args.kv-transfer-config: kv_role 'kv_consumer' does not fit the role prefill:"
         " expected kv_producer or kv_both"),
        (VLLM + """ExtraArgs = ["--kv-transfer-config", '{"kv_role": "kv_producer"}']""", "",
         "ExtraArgs: kv_role 'kv_producer' does not fit the role union: expected kv_both"),
        (VLLM + "Args = { kv-transfer-config = 'oops' }", "",
         "Args.kv-transfer-config: expected a table, or one as JSON, with kv_role"),
    ],
)  # fmt: skip
def test_mistakes_that_the_settings_show(tmp_path: Path, engine: str, settings: str, words: str) -> None:
    (found,) = complaints(tmp_path, engine, settings)
    assert found.partition("Engine.")[2].startswith(words)
    assert found.startswith("engine.toml:")


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        (VLLM + "Args = { tensor-parallel-size = 16 }", nodes(2)),
        (VLLM + "Args = { tensor-parallel-size = '${TP:-8}' }", "[parallel]\ntp_size = 8"),
        (VLLM + "Args = { tensor-parallel-size = '${SIZE}' }", ""),
        (VLLM + "Args = { tensor-parallel-size = '${NNODES}' }", nodes(2)),
        (VLLM + "DataParallel = 'internal'\nLocalRanks = 2\nArgs = { data-parallel-size = 4 }", nodes(2)),
        (VLLM + "DataParallel = 'internal'\nArgs = { data-parallel-size = 1 }", ""),
        (VLLM + "DataParallel = 'external'\nArgs = { tensor-parallel-size = 8 }", nodes(2, "[parallel]\ndp_size = 2")),
        (SGLANG + "DataParallel = 'internal'\nArgs = { dp-size = 8, tp-size = 16, enable-dp-attention = true }",
         nodes(2)),
        (VLLM + "Role = 'prefill'\nArgs = { kv-transfer-config = { kv_role = 'kv_producer' } }",
         "[supervisor]\nrole = 'prefill'"),
        (VLLM + "Args = { kv-transfer-config = { kv_role = '${KV}' } }", ""),
        (EXEC, "[parallel]\ntp_size = 4"),
    ],
)  # fmt: skip
def test_what_goes_together(tmp_path: Path, engine: str, settings: str) -> None:
    assert complaints(tmp_path, engine, settings, SIZE="4", KV="kv_both") == []


def test_a_run_is_refused_with_the_same_words(tmp_path: Path) -> None:
    engine = VLLM + "Args = { tensor-parallel-size = 8 }"
    units, config = written(tmp_path, engine, "[parallel]\ntp_size = 4")
    with pytest.raises(ConfigurationError, match=r"engine\.toml:4: Engine\.Args: \[parallel\] tp_size .* is 4"):
        configure(Options(config=config, units=(units,), socket=None), {})


def test_what_an_environment_file_says_counts(tmp_path: Path) -> None:
    (tmp_path / "sizes").write_text("SIZE=3\n")
    files = f'[Service]\nEnvironmentFile = "{tmp_path}/sizes"\n'
    (found,) = complaints(tmp_path, files + VLLM + "Args = { tensor-parallel-size = '${SIZE}' }", nodes(2))
    assert "3 ranks (tensor, pipeline, data parallel) cannot be split over 2 nodes" in found


# --- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launcher", "args", "extra", "sizes"),
    [
        (Launcher.VLLM, {"tensor-parallel-size": "8", "enable-expert-parallel": True}, (), Sizes(tp=8, ep=8)),
        (Launcher.VLLM, {"tensor_parallel_size": 4}, ("-pp=2",), Sizes(tp=4, pp=2)),
        (Launcher.VLLM, {"tensor-parallel-size": 4}, ("--tensor-parallel-size", "2"), Sizes(tp=2)),
        (Launcher.SGLANG, {"dp-size": 2}, ("--tp", "4"), Sizes(dp=2, tp=4)),
        (Launcher.SGLANG, {"dp-size": 2, "tp": 4, "enable-dp-attention": True}, (),
         Sizes(dp=2, tp=4, attention_only=True)),
        (Launcher.SGLANG, {"attn-dp-size": 4, "tp-size": 8, "ep-size": 8}, (),
         Sizes(dp=4, tp=8, ep=8, attention_only=True)),
        (Launcher.EXEC, {}, (), None),
    ],
)  # fmt: skip
def test_sizes_are_read_from_the_engine_s_own_flags(
    launcher: Launcher, args: dict[str, str | int | bool], extra: tuple[str, ...], sizes: Sizes | None
) -> None:
    assert sizes_of(Engine(launcher=launcher, args=tuple(args.items()), extra_args=extra)) == sizes


@pytest.mark.parametrize("value", ["0", "-1", "2.5", True, "", ("1", "2")])
def test_a_size_is_a_whole_number(value: str | bool | tuple[str, ...]) -> None:
    with pytest.raises(Unreadable):
        sizes_of(Engine(launcher=Launcher.VLLM, args=(("tensor-parallel-size", value),)))


@pytest.mark.parametrize(
    ("engine", "settings", "config", "one"),
    [
        (VLLM + "Args = { tensor-parallel-size = 16 }", nodes(2),
         ParallelConfig(tp_size=16, world_size=16, local_world_size=8), True),
        (VLLM + "DataParallel = 'hybrid'\nArgs = { data-parallel-size = 4, tensor-parallel-size = 2 }", nodes(2),
         ParallelConfig(dp_size=4, tp_size=2, world_size=8, local_world_size=4), False),
        (VLLM + "DataParallel = 'external'\nArgs = { tensor-parallel-size = 2 }", nodes(2),
         ParallelConfig(dp_size=2, tp_size=2, world_size=4, local_world_size=2), False),
        (SGLANG + "DataParallel = 'internal'\nArgs = { attn-dp-size = 4, tp-size = 8 }", nodes(2),
         ParallelConfig(dp_size=4, tp_size=8, world_size=8, local_world_size=4), True),
        (EXEC, nodes(2, "[parallel]\ndp_size = 2\ntp_size = 4"),
         ParallelConfig(dp_size=2, tp_size=4, world_size=8, local_world_size=4), False),
    ],
)  # fmt: skip
def test_what_the_controller_is_told(
    tmp_path: Path, engine: str, settings: str, config: ParallelConfig, one: bool
) -> None:
    units, path = written(tmp_path, engine, settings)
    (unit,) = load_units([units])
    assert parallel_config(unit, load_settings(path, {}), {}) == config
    assert one_server(unit) is one
