"""Makes tiny llama models with random weights: `tiny_model.py OUT [--layers N …]`.

OUT.gguf is for llama-server; without that ending OUT is a folder as transformers and vLLM read it. The text
is noise, but the loader, the tokenizer, the scheduler, the KV cache and the HTTP server that run on it are
real. The same shape gives the same bytes. Run as a file by a Python that has numpy and the format's own
library (gguf, or safetensors and tokenizers); importing it needs none of them.
"""

import argparse
import json
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf import GGUFWriter
    from numpy import float32
    from numpy.typing import NDArray

GGUF = ".gguf"
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
    def folder_name(self) -> str:
        return f"tiny-{'-'.join(map(str, astuple(self)))}"

    @property
    def file_name(self) -> str:
        return f"{self.folder_name}{GGUF}"

    @property
    def arguments(self) -> list[str]:
        return [f"{_flag(field.name)}={getattr(self, field.name)}" for field in fields(self)]


def _flag(field_name: str) -> str:
    return f"--{field_name.replace('_', '-')}"


def _weights(shape: Shape, tokens: int, sayable: Collection[int]) -> "Iterator[tuple[str, NDArray[float32]]]":
    """Random weights under their GGUF names, of which only the `sayable` tokens can come.

    Others would give broken UTF-8, which llama-server answers with 500, and end of text at random. So
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

    embedding = random(tokens, shape.width, spread=0.5)
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
    output = random(tokens, shape.width, spread=4 / shape.width**0.5)
    output[:, 0] = -2
    output[list(sayable), 0] = 2
    yield "output.weight", output


# --- as one file in GGUF ------------------------------------------------------------------------------------------


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


def _write_gguf(shape: Shape, file: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(str(file), "llama")
    _describe(writer, shape)
    for name, matrix in _weights(shape, len(VOCABULARY), range(len(SPECIALS) + len(BYTES), len(VOCABULARY))):
        writer.add_tensor(name, matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- as a folder ------------------------------------------------------------------------------------------------

OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOKENS = 320
"""The specials and one token for each byte, filled up to a multiple of 64, as vLLM pads it anyway."""


def _name_in_folder(gguf_name: str) -> str:
    if gguf_name in OUTER_NAMES:
        return OUTER_NAMES[gguf_name]
    _, layer, part, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"


def _write_folder(shape: Shape, folder: Path) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    sayable = _write_tokenizer(shape, folder)
    matrices = {_name_in_folder(name): matrix for name, matrix in _weights(shape, TOKENS, sayable)}
    save_file(matrices, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(
        folder / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        dtype="float32",
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        vocab_size=TOKENS,
        max_position_embeddings=shape.context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=BEGIN,
        eos_token_id=END,
    )


def _write_tokenizer(shape: Shape, folder: Path) -> list[int]:
    """Byte-level BPE without merges: a token a byte, so that any text can be asked. Returns what may be said."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    known = {token: number for number, token in enumerate([*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[], unk_token=SPECIALS[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        unk_token=SPECIALS[UNKNOWN],
        bos_token=SPECIALS[BEGIN],
        eos_token=SPECIALS[END],
        model_max_length=shape.context,
        chat_template=CHAT_TEMPLATE,
    )
    return [known[chr(code)] for code in range(33, 127)]


def _write_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n")


# ----------------------------------------------------------------------------------------------------------------


def make(shape: Shape, model: Path) -> None:
    """Write the model; the name appears only when all of it is there."""
    partial = model.with_name(f"{os.getpid()}.{model.name}")
    try:
        if model.suffix == GGUF:
            _write_gguf(shape, partial)
        else:
            _write_folder(shape, partial)
        partial.replace(model)
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny llama model with random weights: OUT.gguf, or a folder.")
    parser.add_argument("out", type=Path)
    for field in fields(Shape):
        parser.add_argument(_flag(field.name), type=int, default=field.default)
    arguments = vars(parser.parse_args())
    make(Shape(**{field.name: arguments[field.name] for field in fields(Shape)}), arguments["out"])


if __name__ == "__main__":
    main()
