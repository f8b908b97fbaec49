#!/usr/bin/env python3
"""Writes a GGUF model of real shape with random weights and a generated vocabulary: to measure what no small real file has.

usage: make_model.py SHAPE OUT [--seed N] [--layers N]       SHAPE: llama-1b, qwen-0.5b, tiny

llama-1b   as Llama 3.2 1B: Q4_K, Q6_K for some of v and down as in Q4_K_M files, Q6_K embedding that is the head too; 128,256 tokens
qwen-0.5b  as Qwen2.5 0.5B, width 1024 so that blocks of 256 fit: IQ4_XS, biases of q, k and v, Q8_0 embedding and head; 151,936 tokens
tiny       a llama of 2 narrow layers and 1,000 tokens, Q4_K

The same seed gives the same file. Quantized bytes are random; block scales are such that a weight's deviation is 1 / sqrt(columns).
"""
import argparse
import math
import random
import struct
from dataclasses import dataclass

ALIGN = 32


@dataclass
class Type:
    """A GGUF tensor type: block sizes, where its f16 scales lie, and the deviation of random codes for a scale of 1."""
    number: int
    block: int
    bytes: int
    scales: tuple[tuple[int, float], ...]      # (offset, factor)
    deviation: float


# Deviations: of q * scale - min * m for uniform 4-bit q, 6-bit scale and m, the mins' factor making the mean 0 (Q4_K); of
# scale * code for uniform signed scales and codes (others).
TYPES = {"Q8_0": Type(8, 32, 34, ((0, 1.0),), 73.9), "Q4_K": Type(12, 256, 144, ((0, 1.0), (2, 7.5)), 254.0),
         "Q6_K": Type(14, 256, 210, ((208, 1.0),), 1365.0), "IQ4_XS": Type(23, 256, 136, ((0, 1.0),), 1300.0)}


@dataclass
class Shape:
    architecture: str
    pre: str
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    context: int
    rope: float
    vocab: int
    weights: str
    embedding: str
    head: str = ""               # empty: the embedding
    better: str = ""             # type of v and down in the layers that mixed files keep wider
    biases: bool = False
    add_bos: bool = True


SHAPES = {
    "llama-1b": Shape("llama", "llama-bpe", 16, 2048, 8192, 32, 8, 131072, 5e5, 128256, "Q4_K", "Q6_K", better="Q6_K"),
    "qwen-0.5b": Shape("qwen2", "qwen2", 24, 1024, 4864, 16, 2, 32768, 1e6, 151936, "IQ4_XS", "Q8_0", head="Q8_0", biases=True, add_bos=False),
    "tiny": Shape("llama", "llama-bpe", 2, 256, 512, 4, 2, 2048, 1e4, 1000, "Q4_K", "Q6_K"),
}


def byte_letters() -> list[str]:
    """The letters that byte-level BPE writes for bytes: printable ones stand for themselves, the others follow U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


def vocabulary(size: int, rng: random.Random) -> tuple[list[str], list[str], int]:
    """(tokens, merges, number of ordinary ones); after those come control tokens: begin, end, and reserved ones."""
    tokens, letters, merges = byte_letters(), "etaoinsrhldcumfpgwybvkxjqz", []
    known, control = set(tokens), 2 if size < 100000 else 256
    parts = ["\u0120", *letters]           # \u0120 is the space: only at the beginning
    while len(tokens) < size - control:
        left, right = rng.choice(parts), rng.choice(parts)
        if right[0] == "\u0120" or left + right in known:
            continue
        known.add(left + right)
        merges.append(f"{left} {right}")
        tokens.append(left + right)
        if len(left + right) <= 6:         # so that pairs are plenty
            parts.append(left + right)
    return tokens + ["<|begin|>", "<|end|>"] + [f"<|reserved_{i}|>" for i in range(control - 2)], merges, len(tokens)


def gguf_string(s: str) -> bytes:
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def metadata(key: str, value) -> bytes:
    """One pair; the type follows from the value: bool, int (u32), float (f32), str, list of str, list of int (i32)."""
    if isinstance(value, bool):
        body = struct.pack("<IB", 7, value)
    elif isinstance(value, int):
        body = struct.pack("<II", 4, value)
    elif isinstance(value, float):
        body = struct.pack("<If", 6, value)
    elif isinstance(value, str):
        body = struct.pack("<I", 8) + gguf_string(value)
    elif isinstance(value[0], str):
        body = struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value))
    else:
        body = struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return gguf_string(key) + body


def pairs_of(name: str, s: Shape, rng: random.Random) -> list[bytes]:
    tokens, merges, ordinary = vocabulary(s.vocab, rng)
    a = s.architecture
    return [metadata(*p) for p in {
        "general.architecture": a, "general.name": f"{name} with random weights", f"{a}.block_count": s.layers, f"{a}.context_length": s.context,
        f"{a}.embedding_length": s.width, f"{a}.feed_forward_length": s.inner, f"{a}.attention.head_count": s.heads,
        f"{a}.attention.head_count_kv": s.kv_heads, f"{a}.rope.freq_base": s.rope, f"{a}.rope.dimension_count": s.width // s.heads,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-5, f"{a}.vocab_size": s.vocab, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": s.pre,
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * ordinary + [3] * (len(tokens) - ordinary), "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": ordinary, "tokenizer.ggml.eos_token_id": ordinary + 1, "tokenizer.ggml.add_bos_token": s.add_bos,
        "general.quantization_version": 2}.items()]


def tensors_of(s: Shape) -> list[tuple[str, str, int, int]]:
    """(name, type, columns, rows); rows 0: a vector of floats."""
    kv = s.width // s.heads * s.kv_heads
    out = [("token_embd.weight", s.embedding, s.width, s.vocab), ("output_norm.weight", "ones", s.width, 0)]
    if s.head:
        out.append(("output.weight", s.head, s.width, s.vocab))
    for i in range(s.layers):
        wide = s.better if s.better and (i < s.layers // 8 or i >= 7 * s.layers // 8 or i % 3 == 2) else s.weights
        layer = [("attn_norm.weight", "ones", s.width, 0), ("attn_q.weight", s.weights, s.width, s.width), ("attn_k.weight", s.weights, s.width, kv),
                 ("attn_v.weight", wide, s.width, kv), ("attn_output.weight", s.weights, s.width, s.width), ("ffn_norm.weight", "ones", s.width, 0),
                 ("ffn_gate.weight", s.weights, s.width, s.inner), ("ffn_up.weight", s.weights, s.width, s.inner), ("ffn_down.weight", wide, s.inner, s.width)]
        if s.biases:
            layer += [("attn_q.bias", "small", s.width, 0), ("attn_k.bias", "small", kv, 0), ("attn_v.bias", "small", kv, 0)]
        out += [(f"blk.{i}.{name}", *rest) for name, *rest in layer]
    return out


def bytes_of(kind: str, columns: int, rows: int) -> int:
    return columns * 4 if rows == 0 else columns // TYPES[kind].block * TYPES[kind].bytes * rows


def data_of(kind: str, columns: int, rows: int, rng: random.Random) -> bytes:
    if rows == 0:
        return struct.pack(f"<{columns}f", *([1.0] * columns if kind == "ones" else [rng.gauss(0, 0.02) for _ in range(columns)]))
    t, size = TYPES[kind], bytes_of(kind, columns, rows)
    data = bytearray(rng.randbytes(size))
    scale = 1 / math.sqrt(columns) / t.deviation
    for offset, factor in t.scales:
        half = struct.pack("<e", scale * factor)
        for i in range(2):
            data[offset + i::t.bytes] = half[i:i + 1] * (size // t.bytes)
    return bytes(data)


def write(path: str, name: str, s: Shape, seed: int) -> None:
    pairs, tensors = pairs_of(name, s, random.Random(seed)), tensors_of(s)
    head, offset = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs)), *pairs], 0
    for tensor, kind, columns, rows in tensors:
        sizes = (columns, rows) if rows else (columns,)
        head.append(gguf_string(tensor) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, TYPES[kind].number if rows else 0, offset))
        offset += -(-bytes_of(kind, columns, rows) // ALIGN) * ALIGN
    with open(path, "wb") as f:
        start = b"".join(head)
        f.write(start + bytes(-len(start) % ALIGN))
        for i, (_, kind, columns, rows) in enumerate(tensors):
            data = data_of(kind, columns, rows, random.Random(seed * 1000003 + i))
            f.write(data + bytes(-len(data) % ALIGN))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--layers", type=int, help="fewer or more of them")
    a = p.parse_args()
    shape = SHAPES[a.shape]
    shape.layers = a.layers or shape.layers
    write(a.out, a.shape, shape, a.seed)


if __name__ == "__main__":
    main()
