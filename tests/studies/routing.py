"""How many experts the tokens of a prompt choose in each layer of a Qwen3 mixture: a forward pass of its own, in NumPy.

    pip install numpy gguf
    flux model synth qwen3-30b-a3b -o moe.gguf
    python3 tests/studies/routing.py moe.gguf --layers 48 --tokens 64

Tokens that choose evenly and each for itself choose count * (1 - (1 - used / count) ** tokens) experts together.
"""

import argparse

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.fields = reader.fields

    def value(self, key):
        field = next(field for name, field in self.fields.items() if name.endswith(key))
        return field.parts[field.data[0]][0]

    def weights(self, name, rows=slice(None)):
        tensor = self.tensors[name]
        return dequantize(tensor.data[rows], tensor.tensor_type)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def rope(x, base):
    """NeoX order: the first half of a head turns with the second."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[0])[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    model, n = Model(args.model), args.tokens
    heads, kv_heads = int(model.value(".attention.head_count")), int(model.value(".attention.head_count_kv"))
    size, used, count = (int(model.value(key)) for key in (".attention.key_length", ".expert_used_count", ".expert_count"))
    base, epsilon = float(model.value(".rope.freq_base")), float(model.value(".layer_norm_rms_epsilon"))
    norm = lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    causal = np.triu(np.full((n, n), -np.inf), 1)

    vocabulary = model.tensors["token_embd.weight"].data.shape[0]
    x = model.weights("token_embd.weight", np.random.default_rng(7).integers(3, vocabulary, n))
    print(f"evenly: {count * (1 - (1 - used / count) ** n):.1f} of {count} experts")
    for layer in range(args.layers):
        part = f"blk.{layer}."
        project = lambda y, name: y @ model.weights(f"{part}{name}.weight").T
        y = norm(x)
        q = rope(norm(project(y, "attn_q").reshape(n, heads, size)), base)
        k = rope(norm(project(y, "attn_k").reshape(n, kv_heads, size)), base)
        v = project(y, "attn_v").reshape(n, kv_heads, size)
        k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        attention = softmax(np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size) + causal)
        x = x + project(np.einsum("hij,jhd->ihd", attention, v).reshape(n, -1), "attn_output")

        y = norm(x)
        router = project(y, "ffn_gate_inp")
        chosen = np.argsort(-router, -1)[:, :used]
        share = softmax(np.take_along_axis(router, chosen, -1))
        added = np.zeros_like(x)
        for expert in np.unique(chosen):
            gate, up, down = (model.weights(f"{part}ffn_{name}_exps.weight", expert) for name in ("gate", "up", "down"))
            for token, slot in zip(*np.where(chosen == expert)):
                g = gate @ y[token]
                added[token] += share[token, slot] * (down @ (g / (1 + np.exp(-g)) * (up @ y[token])))
        alike = (y @ y.T / y.shape[1] * (1 - np.eye(n))).sum() / (n * n - n)
        print(f"layer {layer}: {len(np.unique(chosen))} experts; cosine of two tokens {alike:.3f}", flush=True)
        x = x + added


if __name__ == "__main__":
    main()
