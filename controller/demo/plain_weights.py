"""Writes a quantised model with plain weights: `plain_weights.py QUANTISED.gguf PLAIN.gguf`.

The llama-server that we run multiplies quantised weights (Q4_0 to Q8_0) by AVX-VNNI, for which its build does not
ask the CPU: where that is missing it ends with SIGILL, repacked weights or not. Numbers of 16 bits it
multiplies without, so every CPU on which it starts at all runs such a model. Run as a file by a Python that has
gguf and numpy; importing it needs neither.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter
    from gguf.gguf_reader import ReaderTensor
    from numpy import float16, float32
    from numpy.typing import NDArray


def write_plain(quantised: Path, plain: Path) -> None:
    """Takes 15 s and 2 GB of memory for 270 million weights. A failure leaves a file that is not whole."""
    import gguf

    reader = gguf.GGUFReader(quantised)
    writer = gguf.GGUFWriter(plain, reader.fields[gguf.Keys.General.ARCHITECTURE].contents())
    _describe(writer, reader)
    for tensor in reader.tensors:
        _announce(writer, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:  # each is let go before the next is computed
        writer.write_tensor_data(_plain(tensor))
    writer.close()


def _describe(writer: "GGUFWriter", reader: "GGUFReader") -> None:
    """All that the model says of itself, but for how it is quantised."""
    import gguf

    general = gguf.Keys.General
    for name, field in reader.fields.items():
        # What begins with GGUF is the reader's own, and the writer already has the architecture.
        if name.startswith("GGUF.") or name in (general.ARCHITECTURE, general.FILE_TYPE, general.QUANTIZATION_VERSION):
            continue
        kind, *of = field.types
        writer.add_key_value(name, field.contents(), kind, sub_type=of[-1] if of else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _announce(writer: "GGUFWriter", tensor: "ReaderTensor") -> None:
    """Name, shape and size, which stand in the file before all weights."""
    import numpy

    number = numpy.dtype(numpy.float32 if _is_exact(tensor) else numpy.float16)
    shape = tensor.shape.tolist()[::-1]
    writer.add_tensor_info(tensor.name, shape, number, int(tensor.n_elements) * number.itemsize)


def _plain(tensor: "ReaderTensor") -> "NDArray[float16] | NDArray[float32]":
    import gguf

    if _is_exact(tensor):
        return tensor.data
    return gguf.dequantize(tensor.data, tensor.tensor_type).astype("float16")


def _is_exact(tensor: "ReaderTensor") -> bool:
    """A norm, mostly: small, and the engine wants it in 32 bits."""
    import gguf

    return bool(tensor.tensor_type == gguf.GGMLQuantizationType.F32)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a quantised model with weights of 16 bits.")
    parser.add_argument("quantised", type=Path)
    parser.add_argument("plain", type=Path)
    options = parser.parse_args()
    write_plain(options.quantised, options.plain)


if __name__ == "__main__":
    main()
