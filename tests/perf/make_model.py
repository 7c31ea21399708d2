"""A Bonsai-shaped Q1_0 GGUF with random weights, for timing: real speed, no sense.

Usage: make_model.py SHAPE OUT     SHAPE: 0.6B 1.7B 4B 8B
Layout follows docs of the GGUF container; the vocabulary is 151,669 made-up tokens behind the 256 byte tokens.
"""
import os
import struct
import sys

SHAPES = {  # n_embd, layers, heads, kv heads, n_ff, tied head
    "0.6B": (1024, 28, 16, 8, 3072, True), "1.7B": (2048, 28, 16, 8, 6144, True),
    "4B": (2560, 36, 32, 8, 9728, True), "8B": (4096, 36, 32, 8, 12288, False)}
VOCAB, HEAD, ALIGN = 151669, 128, 32
F32, Q1_0 = 0, 41


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def u32(key, value): return pair(key, 4, struct.pack("<I", value))
def f32(key, value): return pair(key, 6, struct.pack("<f", value))
def text(key, value): return pair(key, 8, string(value))
def array(key, kind, items): return pair(key, 9, struct.pack("<IQ", kind, len(items)) + b"".join(items))


def byte_tokens():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b if b in printable else next(spare)) for b in range(256)]


def q1_rows(rows, cols, deviation):
    raw = bytearray(os.urandom(rows * cols // 128 * 18))
    scale = struct.pack("<e", deviation)
    blocks = len(raw) // 18
    raw[0::18] = scale[:1] * blocks
    raw[1::18] = scale[1:] * blocks
    return raw


def main(shape, out):
    embd, layers, heads, kv, ff, tied = SHAPES[shape]
    tokens = byte_tokens() + [f"t{i}" for i in range(256, VOCAB - 1)] + ["<|endoftext|>"]
    types = [1] * (VOCAB - 1) + [3]
    metadata = [text("general.architecture", "qwen3"), text("general.name", f"random-{shape}"), u32("general.file_type", 40),
                u32("qwen3.block_count", layers), u32("qwen3.context_length", 32768), u32("qwen3.embedding_length", embd),
                u32("qwen3.feed_forward_length", ff), u32("qwen3.attention.head_count", heads),
                u32("qwen3.attention.head_count_kv", kv), u32("qwen3.attention.key_length", HEAD),
                u32("qwen3.attention.value_length", HEAD), f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6),
                f32("qwen3.rope.freq_base", 1e6), text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "qwen2"),
                array("tokenizer.ggml.tokens", 8, [string(t) for t in tokens]),
                array("tokenizer.ggml.token_type", 5, [struct.pack("<i", t) for t in types]),
                array("tokenizer.ggml.merges", 8, []), u32("tokenizer.ggml.eos_token_id", VOCAB - 1)]
    matrix = lambda name, rows, cols: (name, (cols, rows), Q1_0, rows * cols // 128 * 18)
    vector = lambda name, n: (name, (n,), F32, 4 * n)
    tensors = [matrix("token_embd.weight", VOCAB, embd), vector("output_norm.weight", embd)]
    if not tied:
        tensors.append(matrix("output.weight", VOCAB, embd))
    for i in range(layers):
        b = f"blk.{i}."
        tensors += [vector(b + "attn_norm.weight", embd), matrix(b + "attn_q.weight", heads * HEAD, embd),
                    matrix(b + "attn_k.weight", kv * HEAD, embd), matrix(b + "attn_v.weight", kv * HEAD, embd),
                    vector(b + "attn_q_norm.weight", HEAD), vector(b + "attn_k_norm.weight", HEAD),
                    matrix(b + "attn_output.weight", embd, heads * HEAD), vector(b + "ffn_norm.weight", embd),
                    matrix(b + "ffn_gate.weight", ff, embd), matrix(b + "ffn_up.weight", ff, embd),
                    matrix(b + "ffn_down.weight", embd, ff)]
    offset, table = 0, b""
    for name, dims, kind, size in tensors:
        table += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
        offset += -(-size // ALIGN) * ALIGN
    with open(out, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata) + table)
        file.write(bytes(-file.tell() % ALIGN))
        for _, dims, kind, size in tensors:
            data = struct.pack("<f", 1.0) * dims[0] if kind == F32 else q1_rows(dims[1], dims[0], 0.8 / dims[0] ** 0.5)
            file.write(data)
            file.write(bytes(-size % ALIGN))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
