"""Models of the PyTorch peer, named as in a Hugging Face folder: Llama, and the text model of Gemma 3.

Windowed attention of Gemma 3 is one of WINDOWED: FlexAttention with a block mask, FlashAttention-2 with its window (the
op under scaled_dot_product_attention, which has no argument for it), or scaled_dot_product_attention under a mask.
"""
import pathlib
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_common import GEMMA_NORMS  # noqa: E402


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def rope_table(shape, theta, factor):
    """Cosines and sines [1, T, 1, D / 2] in f32; factor: of linear scaling."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angle = torch.outer(torch.arange(shape.seq_len, dtype=torch.float64) / factor, theta**-half)
    return angle.cos().float()[None, :, None, :], angle.sin().float()[None, :, None, :]


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        d, query, key = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        linear = lambda rows, columns: nn.Linear(columns, rows, bias=False)
        self.head_dim, self.grouped = shape.head_dim, shape.heads != shape.kv_heads
        self.input_layernorm = nn.RMSNorm(d, eps=shape.eps)
        self.post_attention_layernorm = nn.RMSNorm(d, eps=shape.eps)
        self.self_attn = nn.ModuleDict(dict(q_proj=linear(query, d), k_proj=linear(key, d), v_proj=linear(key, d),
                                            o_proj=linear(d, query)))
        self.mlp = nn.ModuleDict(dict(gate_proj=linear(shape.ffn, d), up_proj=linear(shape.ffn, d),
                                      down_proj=linear(d, shape.ffn)))

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        attention, mlp = self.self_attn, self.mlp
        split = lambda t: t.view(batch, length, -1, self.head_dim)
        y = self.input_layernorm(x)
        q = rotate(split(attention["q_proj"](y)), cos, sin).transpose(1, 2)
        k = rotate(split(attention["k_proj"](y)), cos, sin).transpose(1, 2)
        v = split(attention["v_proj"](y)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        x = x + attention["o_proj"](y.transpose(1, 2).reshape(batch, length, -1))
        y = self.post_attention_layernorm(x)
        return x + mlp["down_proj"](F.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.eps)
        self.lm_head = nn.Linear(shape.width, shape.vocab, bias=False)
        if shape.tied:
            self.lm_head.weight = self.embed_tokens.weight
        self.angle = rope_table(shape, shape.rope_theta, 1.0)

    def to_device(self, device):
        self.to(device)
        self.angle = tuple(part.to(device) for part in self.angle)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, *self.angle)
        return self.lm_head(self.norm(x))


# ---- windowed attention: functions of q, k, v [B, heads, T, D] ---------------------------------------------------------


def flex_window(shape, device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    window, grouped = max(shape.windows), shape.heads != shape.kv_heads
    inside = lambda batch, head, query, key: (query >= key) & (query - key < window)
    mask = create_block_mask(inside, None, None, shape.seq_len, shape.seq_len, device=device)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, scale=shape.query_scale, enable_gqa=grouped)


def flash_window(shape, device):
    before = max(shape.windows) - 1

    def attend(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.size(1), k.size(1), 0.0, True, False,
                                                      scale=shape.query_scale, window_size_left=before, window_size_right=0)
        return out[0].transpose(1, 2)

    return attend


def masked_window(shape, device):
    grouped, at = shape.heads != shape.kv_heads, torch.arange(shape.seq_len, device=device)
    apart = at[:, None] - at[None, :]
    mask = (apart >= 0) & (apart < max(shape.windows))
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, scale=shape.query_scale, enable_gqa=grouped)


WINDOWED = {"mask": masked_window, "flex": flex_window, "flash": flash_window}  # the first is the reference


def fastest_windowed(shape, device, dtype, repeats=10):
    """Name of the fastest, forward and backward under torch.compile, and the milliseconds of each. Those that do not take
    the shape, the dtype or the device, or have other gradients than the first, are left out."""
    make = lambda heads: torch.randn(shape.batch, heads, shape.seq_len, shape.head_dim, device=device, dtype=dtype,
                                     requires_grad=True)
    q, k, v = make(shape.heads), make(shape.kv_heads), make(shape.kv_heads)
    gradient, on_gpu = torch.randn_like(q), device.startswith("cuda")
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    milliseconds, expected = {}, None
    for name, factory in WINDOWED.items():
        if name != "mask" and not on_gpu:
            continue
        try:
            attend = torch.compile(factory(shape, device)) if on_gpu else factory(shape, device)
            step = lambda: torch.autograd.grad(attend(q, k, v), (q, k, v), gradient)
            for _ in range(3):
                gradients = step()
            wait()
            expected = expected or gradients
            apart = max(float((a.float() - b.float()).norm() / b.float().norm()) for a, b in zip(gradients, expected))
            if apart > 0.02:
                print(f"windowed attention {name}: gradients differ by {apart:.3f}", file=sys.stderr)
                continue
            begin = time.perf_counter()
            for _ in range(repeats if on_gpu else 1):
                step()
            wait()
            milliseconds[name] = (time.perf_counter() - begin) * 1e3 / (repeats if on_gpu else 1)
        except Exception as error:  # what a compiler raises is not one type
            print(f"windowed attention {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    if not milliseconds:
        raise SystemExit("no windowed attention takes this shape")
    if on_gpu:
        torch.cuda.empty_cache()
    return min(milliseconds, key=milliseconds.get), milliseconds


# ---- Gemma 3 -----------------------------------------------------------------------------------------------------------


class GemmaNorm(nn.Module):
    """RMSNorm with weight + 1, one rounding."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), self.eps).to(x.dtype)


class GemmaBlock(nn.Module):
    def __init__(self, shape, attend):
        super().__init__()
        d, query, key = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        linear = lambda rows, columns: nn.Linear(columns, rows, bias=False)
        self.head_dim, self.attend = shape.head_dim, attend
        for name in GEMMA_NORMS:
            setattr(self, name, GemmaNorm(d, shape.eps))
        self.self_attn = nn.ModuleDict(dict(q_proj=linear(query, d), k_proj=linear(key, d), v_proj=linear(key, d),
                                            o_proj=linear(d, query), q_norm=GemmaNorm(shape.head_dim, shape.eps),
                                            k_norm=GemmaNorm(shape.head_dim, shape.eps)))
        self.mlp = nn.ModuleDict(dict(gate_proj=linear(shape.ffn, d), up_proj=linear(shape.ffn, d),
                                      down_proj=linear(d, shape.ffn)))

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        attention, mlp = self.self_attn, self.mlp
        split = lambda t: t.view(batch, length, -1, self.head_dim)
        y = self.input_layernorm(x)
        q = rotate(attention["q_norm"](split(attention["q_proj"](y))), cos, sin).transpose(1, 2)
        k = rotate(attention["k_norm"](split(attention["k_proj"](y))), cos, sin).transpose(1, 2)
        v = split(attention["v_proj"](y)).transpose(1, 2)
        y = self.attend(q, k, v).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.post_attention_layernorm(attention["o_proj"](y))
        y = self.pre_feedforward_layernorm(x)
        y = mlp["down_proj"](F.gelu(mlp["gate_proj"](y), approximate="tanh") * mlp["up_proj"](y))
        return x + self.post_feedforward_layernorm(y)


class Gemma3(nn.Module):
    """Layers with and without a window share one attention function each: the compiled block has two variants."""

    def __init__(self, shape, windowed):
        super().__init__()
        grouped, device = shape.heads != shape.kv_heads, str(torch.get_default_device())
        full = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=shape.query_scale,
                                                              enable_gqa=grouped)
        within = WINDOWED[windowed](shape, device) if any(shape.windows) else None
        self.windows = shape.windows
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(GemmaBlock(shape, within if window else full) for window in shape.windows)
        self.norm = GemmaNorm(shape.width, shape.eps)
        self.lm_head = nn.Linear(shape.width, shape.vocab, bias=False)
        if shape.tied:
            self.lm_head.weight = self.embed_tokens.weight
        # As the rows of the embedding are rounded.
        self.scale = float(torch.tensor(shape.width**0.5).to(self.embed_tokens.weight.dtype))
        self.angles = {True: rope_table(shape, shape.local_rope_theta, 1.0),
                       False: rope_table(shape, shape.rope_theta, shape.rope_factor)}

    def to_device(self, device):
        self.to(device)
        self.angles = {key: tuple(part.to(device) for part in table) for key, table in self.angles.items()}

    def forward(self, tokens):
        x = self.embed_tokens(tokens) * self.scale
        for layer, window in zip(self.layers, self.windows):
            x = layer(x, *self.angles[window > 0])
        return self.lm_head(self.norm(x))


def make_model(shape, windowed=None):
    """On the default device, in the default dtype. windowed: one of WINDOWED, for models with windows."""
    return Gemma3(shape, windowed) if shape.is_gemma3 else Llama(shape)
