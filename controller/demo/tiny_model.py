"""Makes tiny llama models with random weights: `tiny_model.py OUT.gguf [--layers N …]`.

The text is noise, but the loader, the tokenizer, the scheduler, the KV cache and the HTTP server that run
on it are real. The same shape gives the same bytes. Run as a file by a Python that has gguf and numpy;
importing it needs neither.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf import GGUFWriter
    from numpy import float32
    from numpy.typing import NDArray

UNKNOWN, BEGIN, END = 0, 1, 2
SPECIALS = ("<unk>", "<s>", "</s>")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PRINTABLE = ["\u2581", *map(chr, range(33, 127))]  # U+2581 is SentencePiece's space
VOCABULARY = [*SPECIALS, *BYTES, *PRINTABLE]
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. The defaults make 0.5 MB.

    6 layers of width 2048, feed-forward 8192, make 1.6 GB.
    """

    layers: int = 2
    width: int = 64
    feed_forward: int = 128
    heads: int = 2
    context: int = 4096
    seed: int = 0

    @property
    def file_name(self) -> str:
        return f"tiny-{'-'.join(map(str, astuple(self)))}.gguf"

    @property
    def arguments(self) -> list[str]:
        return [f"{_flag(field.name)}={getattr(self, field.name)}" for field in fields(self)]


def _flag(field_name: str) -> str:
    return f"--{field_name.replace('_', '-')}"


def _weights(shape: Shape) -> "Iterator[tuple[str, NDArray[float32]]]":
    """Random weights under their GGUF names, which can only say printable ASCII.

    Random tokens give broken UTF-8, which llama-server answers with 500, and end of text at random. So
    dimension 0 of the residual stream is held constant (equal in every embedding, written by no layer),
    which makes column 0 of the output matrix a bias: high for what may be said, low for the rest. Then
    max_tokens alone decides the length of an answer.
    """
    import numpy

    chance = numpy.random.default_rng(shape.seed)

    def random(*size: int, spread: float = 0.02) -> "NDArray[float32]":
        return chance.standard_normal(size, dtype=numpy.float32) * numpy.float32(spread)

    def ones() -> "NDArray[float32]":
        return numpy.ones(shape.width, numpy.float32)

    def silent_in_dimension_0(inputs: int) -> "NDArray[float32]":
        matrix = random(shape.width, inputs)
        matrix[0, :] = 0
        return matrix

    embedding = random(len(VOCABULARY), shape.width, spread=0.5)
    embedding[:, 0] = shape.width**0.5 / 2
    yield "token_embd.weight", embedding
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", ones()
        for part in ("q", "k", "v"):
            yield f"{block}.attn_{part}.weight", random(shape.width, shape.width)
        yield f"{block}.attn_output.weight", silent_in_dimension_0(shape.width)
        yield f"{block}.ffn_norm.weight", ones()
        for part in ("gate", "up"):
            yield f"{block}.ffn_{part}.weight", random(shape.feed_forward, shape.width)
        yield f"{block}.ffn_down.weight", silent_in_dimension_0(shape.feed_forward)
    yield "output_norm.weight", ones()
    output = random(len(VOCABULARY), shape.width, spread=4 / shape.width**0.5)
    output[:, 0] = -2
    output[len(SPECIALS) + len(BYTES) :, 0] = 2
    yield "output.weight", output


def _describe(writer: "GGUFWriter", shape: Shape) -> None:
    import gguf

    kinds = gguf.TokenType
    writer.add_name("tiny-random")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(VOCABULARY)
    writer.add_token_scores([0.0] * (len(SPECIALS) + len(BYTES)) + [-1.0] * len(PRINTABLE))
    writer.add_token_types(
        [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.BYTE] * len(BYTES) + [kinds.NORMAL] * len(PRINTABLE)
    )
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def make(shape: Shape, model: Path) -> None:
    """Write the model; the name appears only when the file is whole. Needs gguf and numpy."""
    import gguf

    partial = model.with_name(f"{model.name}.{os.getpid()}")
    writer = gguf.GGUFWriter(str(partial), "llama")
    try:
        _describe(writer, shape)
        for name, matrix in _weights(shape):
            writer.add_tensor(name, matrix)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.replace(model)
    finally:
        partial.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny llama model with random weights, in GGUF.")
    parser.add_argument("out", type=Path)
    for field in fields(Shape):
        parser.add_argument(_flag(field.name), type=int, default=field.default)
    arguments = vars(parser.parse_args())
    make(Shape(**{field.name: arguments[field.name] for field in fields(Shape)}), arguments["out"])


if __name__ == "__main__":
    main()
