"""Model files of few weights, each of them known: `known_blocks.py write FILE`, `known_blocks.py show FILE`.

Run as a file by the engines' Python, which has gguf; importing it needs only what stands here. The quantised
blocks are put together byte by byte, so that the library which undoes them does not judge itself.
"""

import json
import sys
from struct import pack

SCALE = 0.25
EIGHT_BITS = pack("<e32b", SCALE, *range(-16, 16))
EIGHT_BITS_MEAN = [SCALE * number for number in range(-16, 16)]

# The four lower bits of a weight of the first half and of one of the second share a byte; all fifth bits, here set
# in the second half, stand before. 16 means 0.
FIVE_BITS = pack("<eI", SCALE, 0xFFFF0000) + bytes([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] * 2)
FIVE_BITS_MEAN = [
    SCALE * number for number in [*range(-16, 0, 2), *range(-16, 0, 2), *range(1, 16, 2), *range(1, 16, 2)]
]

EXACT = [2.0**-30, 1 + 2.0**-20]
"""Neither can be said in 16 bits."""


def write(file: str) -> None:
    """Two rows of each kind of block."""
    import gguf
    import numpy

    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("Known")
    writer.add_token_list(["<s>", "\u2581a"])
    of_kind = gguf.GGUFValueType
    writer.add_key_value("known.unsigned", [1, 2], of_kind.ARRAY, sub_type=of_kind.UINT32)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q5_0)
    writer.add_quantization_version(2)
    kinds = gguf.GGMLQuantizationType
    for name, block, kind in (("eight", EIGHT_BITS, kinds.Q8_0), ("five", FIVE_BITS, kinds.Q5_0)):
        writer.add_tensor(name, numpy.frombuffer(block * 2, numpy.uint8).reshape(2, -1), raw_dtype=kind)
    writer.add_tensor("norm", numpy.array(EXACT, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def show(file: str) -> None:
    """What it says of itself, and its weights, as JSON: each beside the name of its kind."""
    import gguf

    reader = gguf.GGUFReader(file)
    fields = {
        name: [[kind.name for kind in field.types], field.contents()]
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    tensors = {tensor.name: [tensor.tensor_type.name, tensor.data.tolist()] for tensor in reader.tensors}
    print(json.dumps({"fields": fields, "tensors": tensors}))


if __name__ == "__main__":
    {"write": write, "show": show}[sys.argv[1]](sys.argv[2])
