"""Tiny random GGUF models, made in a moment: every architecture quirk at no cost.

Weights are Q8_0, whose rows don't depend on how many are evaluated together, so speculative and plain
texts must agree to the token. The vocabulary is the 256 bytes and some special tokens.
"""

from pathlib import Path

import gguf
import numpy as np

EOS = 256
BOS = 257
END_OF_TURN = 258
N_VOCAB = 264  # six control and unused tokens behind the bytes

WIDTH = 64
HEADS = 2
FEED_FORWARD = 96
LAYERS = 2
CONTEXT = 512

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_texts() -> list[str]:
    """Return the printable characters that stand for the 256 bytes in byte-level BPE (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


def write_model(
    path: Path,
    architecture: str = "llama",
    *,
    seed: int = 0,
    n_vocab: int = N_VOCAB,
    template: str | None = TEMPLATE,
    changed_token: int | None = None,
    nan: bool = False,
    adds_bos: bool = False,
    pre_tokenizer: str = "gpt-2",
    bos: int = BOS,
    tensors_in_a_file: int = 0,
    layers: int = LAYERS,
    by_layer: bool = False,
) -> Path:
    """Write a random model; the same seed gives the same file.

    It is in several files if `tensors_in_a_file` says so, and counts heads in lists if `by_layer` does.
    """
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_in_a_file)
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length([FEED_FORWARD] * layers if by_layer else FEED_FORWARD)
    writer.add_head_count([HEADS] * layers if by_layer else HEADS)
    writer.add_head_count_kv([HEADS] * layers if by_layer else HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    _add_vocabulary(writer, n_vocab, changed_token)
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_bos_token_id(bos)
    writer.add_add_bos_token(adds_bos)
    if template is not None:
        writer.add_chat_template(template)
    random = np.random.default_rng(seed)
    {"llama": _add_llama, "gemma2": _add_gemma2, "mamba": _add_mamba}[architecture](writer, random, layers)
    embedding = random.normal(0, 0.1, (n_vocab, WIDTH))  # small, so that a token does not just repeat itself
    if architecture == "gemma2":
        embedding[EOS] *= 2.5  # the output matrix too: an end of generation now and then
    _add_matrix(writer, "token_embd.weight", embedding)
    _add_vector(writer, "output_norm.weight", np.full(WIDTH, np.nan) if nan else np.ones(WIDTH))
    if architecture != "gemma2":
        output = random.normal(0, 1, (n_vocab, WIDTH))
        _add_matrix(writer, "output.weight", output)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: gguf.GGUFWriter, n_vocab: int, changed_token: int | None) -> None:
    special = ["<eos>", "<bos>", "<end>"]
    texts = [*byte_texts(), *special]
    types = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(special)
    padding = n_vocab - len(texts)
    texts += [f"[PAD{i}]" for i in range(padding)]
    types += [gguf.TokenType.UNUSED] * padding
    if changed_token is not None:
        texts[changed_token] = "changed"
        types[changed_token] = gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(END_OF_TURN)


def _add_attention(writer: gguf.GGUFWriter, random: np.random.Generator, layer: int) -> None:
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        _add_matrix(writer, f"blk.{layer}.{name}.weight", random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)))
    for name in ("ffn_gate", "ffn_up"):
        _add_matrix(writer, f"blk.{layer}.{name}.weight", random.normal(0, WIDTH**-0.5, (FEED_FORWARD, WIDTH)))
    down = random.normal(0, FEED_FORWARD**-0.5, (WIDTH, FEED_FORWARD))
    _add_matrix(writer, f"blk.{layer}.ffn_down.weight", down)
    for name in ("attn_norm", "ffn_norm"):
        _add_vector(writer, f"blk.{layer}.{name}.weight", np.ones(WIDTH))


def _add_llama(writer: gguf.GGUFWriter, random: np.random.Generator, layers: int) -> None:
    writer.add_rope_dimension_count(WIDTH // HEADS)
    for layer in range(layers):
        _add_attention(writer, random, layer)


def _add_gemma2(writer: gguf.GGUFWriter, random: np.random.Generator, layers: int) -> None:
    """Sliding-window attention in every other layer, over a window that the tests outgrow."""
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_sliding_window(16)
    writer.add_attn_logit_softcapping(50.0)
    writer.add_final_logit_softcapping(30.0)
    for layer in range(layers):
        _add_attention(writer, random, layer)
        for name in ("post_attention_norm", "post_ffw_norm"):
            _add_vector(writer, f"blk.{layer}.{name}.weight", np.ones(WIDTH))


def _add_mamba(writer: gguf.GGUFWriter, random: np.random.Generator, layers: int) -> None:
    """A recurrent model, whose state can't be truncated."""
    inner, state, rank, kernel = 2 * WIDTH, 16, 4, 4
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    for layer in range(layers):
        prefix = f"blk.{layer}"
        _add_vector(writer, f"{prefix}.attn_norm.weight", np.ones(WIDTH))
        _add_matrix(writer, f"{prefix}.ssm_in.weight", random.normal(0, WIDTH**-0.5, (2 * inner, WIDTH)))
        _add_vector(writer, f"{prefix}.ssm_conv1d.weight", random.normal(0, 0.5, (inner, kernel)))
        _add_vector(writer, f"{prefix}.ssm_conv1d.bias", np.zeros(inner))
        _add_matrix(writer, f"{prefix}.ssm_x.weight", random.normal(0, inner**-0.5, (rank + 2 * state, inner)))
        _add_vector(writer, f"{prefix}.ssm_dt.weight", random.normal(0, rank**-0.5, (inner, rank)))
        _add_vector(writer, f"{prefix}.ssm_dt.bias", np.zeros(inner))
        _add_vector(writer, f"{prefix}.ssm_a", -np.tile(np.arange(1.0, state + 1), (inner, 1)))
        _add_vector(writer, f"{prefix}.ssm_d", np.ones(inner))
        _add_matrix(writer, f"{prefix}.ssm_out.weight", random.normal(0, inner**-0.5, (WIDTH, inner)))


def _add_matrix(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)


def _add_vector(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    writer.add_tensor(name, values.astype(np.float32))
