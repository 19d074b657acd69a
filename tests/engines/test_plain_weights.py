"""What is left of a quantised model when its weights are written plain."""

import json
import subprocess
from pathlib import Path

import pytest

from controller.demo import plain_weights
from controller.demo.engines import Engines
from tests.engines import known_blocks
from tests.engines.known_blocks import EIGHT_BITS_MEAN, EXACT, FIVE_BITS_MEAN

pytestmark = pytest.mark.engines

MOSTLY_16_BITS = [["UINT32"], 1]
"""`general.file_type` of a model whose weights are mostly of 16 bits."""


def test_every_weight_has_the_value_that_its_block_means_and_the_model_is_described_as_before(
    engines: Engines, tmp_path: Path
) -> None:
    python = engines.directory / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {python}; `make engines` installs it")

    def run(script: str, *arguments: object) -> str:
        argv = [str(python), "-I", script, *map(str, arguments)]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout

    quantised, plain = tmp_path / "quantised.gguf", tmp_path / "plain.gguf"
    run(known_blocks.__file__, "write", quantised)
    run(plain_weights.__file__, quantised, plain)
    shown = json.loads(run(known_blocks.__file__, "show", plain))
    assert shown["tensors"] == {
        "eight": ["F16", [EIGHT_BITS_MEAN] * 2],
        "five": ["F16", [FIVE_BITS_MEAN] * 2],
        "norm": ["F32", EXACT],
    }
    before = json.loads(run(known_blocks.__file__, "show", quantised))["fields"]
    del before["general.quantization_version"]
    assert shown["fields"] == before | {"general.file_type": MOSTLY_16_BITS}
