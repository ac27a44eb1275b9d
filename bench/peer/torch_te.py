"""TransformerEngine's Llama for torch_gpu.py: its weights in TransformerEngine's modules, under its float8 recipes.

A block is LayerNormLinear (RMSNorm, QKV), one kernel for split and RoPE, DotProductAttention (cuDNN only: neither
flash-attn nor the unfused fallback), Linear, and LayerNormMLP (RMSNorm, SwiGLU): TransformerLayer without its copy of the
queries. Float8 weights are cached over the micro-batches of a step. Parameters stay in the plain model's dtype. The head
multiplies in that dtype too, unless it is converted.
"""
import os

import torch
import torch.nn as nn

for backend in ("NVTE_FLASH_ATTN", "NVTE_UNFUSED_ATTN"):
    os.environ.setdefault(backend, "0")

import transformer_engine.pytorch as te  # noqa: E402
from transformer_engine.common.recipe import DelayedScaling, Float8CurrentScaling  # noqa: E402
from transformer_engine.pytorch.attention.rope import apply_fused_qkv_rotary_pos_emb  # noqa: E402

# E4M3 forward, E5M2 for gradients. Delayed scaling: the maximum of the last 1,024 amax values, the library's default.
RECIPES = {"te_bf16": None, "te_current": Float8CurrentScaling, "te_delayed": DelayedScaling}


def recipe_of(name, float8_attention):
    """The recipe that `name` of torch_gpu.py's --float8 means; None: no float8. float8_attention: attention too."""
    maker = RECIPES[name]
    if maker is None:
        if float8_attention:
            raise SystemExit(f"error: --float8-attention: {name} has no float8; use te_current or te_delayed")
        return None
    return maker(fp8_dpa=float8_attention)


class Block(nn.Module):
    """A block with the weights of `plain`, a Block of torch_gpu.py."""

    def __init__(self, shape, plain):
        super().__init__()
        d, size, groups = shape.width, shape.head_dim, shape.kv_heads
        attention, mlp = plain.self_attn, plain.mlp
        some = mlp["down_proj"].weight
        linear = dict(bias=False, params_dtype=some.dtype, device=some.device)
        norm = dict(eps=shape.eps, normalization="RMSNorm", **linear)
        self.groups, self.split = groups, [shape.heads // groups * size, size, size]
        self.qkv = te.LayerNormLinear(d, groups * sum(self.split), **norm)
        self.attention = te.DotProductAttention(shape.heads, size, num_gqa_groups=groups, qkv_format="bshd",
                                                attn_mask_type="causal")
        self.out = te.Linear(shape.heads * size, d, **linear)
        self.mlp = te.LayerNormMLP(d, shape.ffn, activation="swiglu", **norm)
        with torch.no_grad():
            # Rows of a group of heads: its queries, its key, its value.
            qkv = [attention[name].weight.view(groups, -1, d) for name in ("q_proj", "k_proj", "v_proj")]
            self.qkv.weight.copy_(torch.cat(qkv, 1).flatten(0, 1))
            self.qkv.layer_norm_weight.copy_(plain.input_layernorm.weight)
            self.out.weight.copy_(attention["o_proj"].weight)
            self.mlp.layer_norm_weight.copy_(plain.post_attention_layernorm.weight)
            self.mlp.fc1_weight.copy_(torch.cat([mlp["gate_proj"].weight, mlp["up_proj"].weight]))
            self.mlp.fc2_weight.copy_(mlp["down_proj"].weight)

    def forward(self, x, angle, first):
        batch, length, _ = x.shape
        qkv = self.qkv(x, is_first_microbatch=first).view(batch, length, self.groups, -1)
        q, k, v = apply_fused_qkv_rotary_pos_emb(qkv, angle, angle, self.split, tensor_format="bshd")
        x = x + self.out(self.attention(q, k, v), is_first_microbatch=first)
        return x + self.mlp(x, is_first_microbatch=first)


class Llama(nn.Module):
    """Takes over the weights of `plain`, a Llama of torch_gpu.py, whose blocks are freed one by one."""

    def __init__(self, shape, plain, recipe, float8_head=False):
        super().__init__()
        if float8_head and (shape.tied or shape.vocab % 16 or recipe is None):
            raise SystemExit("error: --float8-head needs te_current or te_delayed, a head of its own and a vocabulary that is "
                             f"a multiple of 16; this model has {shape.vocab} tokens" + (", tied" if shape.tied else ""))
        self.recipe, self.float8_head = recipe, float8_head
        self.embed_tokens, self.lm_head, norm = plain.embed_tokens, plain.lm_head, plain.norm.weight
        self.layers = nn.ModuleList()
        for i in range(shape.layers):
            self.layers.append(Block(shape, plain.layers[i]))
            plain.layers[i] = nn.Identity()
        self.norm = te.RMSNorm(shape.width, eps=shape.eps, dtype=norm.dtype, device=norm.device)
        with torch.no_grad():
            self.norm.weight.copy_(norm)
            if float8_head:
                weight = plain.lm_head.weight
                self.lm_head = te.Linear(shape.width, shape.vocab, bias=False, params_dtype=weight.dtype, device=weight.device)
                self.lm_head.weight.copy_(weight)
        half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
        angle = torch.outer(torch.arange(shape.seq_len, dtype=torch.float64), shape.rope_theta**-half)
        self.angle = torch.cat((angle, angle), -1)[:, None, None, :].float().to(norm.device)

    def forward(self, tokens, first=None):
        """Logits. `first`: whether this is the first micro-batch of a step; None: weights are cast in each call."""
        with te.autocast(enabled=self.recipe is not None, recipe=self.recipe):
            x = self.embed_tokens(tokens)
            for layer in self.layers:
                x = layer(x, self.angle, first)
            x = self.norm(x)
            if self.float8_head:
                return self.lm_head(x, is_first_microbatch=first)
        return self.lm_head(x)
