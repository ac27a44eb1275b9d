"""The peer of bench/gpu_tensor.py: the same Llama in PyTorch with tensor and sequence parallelism and a loss over parts of
the vocabulary, for torchrun.

torch.compile over each block, cuDNN attention first, fused AdamW, weights and moments in bf16. The loss is not compiled:
in PyTorch 2.15 a compiled one is that of a part of the vocabulary.
--asynchronous lets the compiler cut the exchanges into pieces beside the GEMMs (async TP). Every process reads the same
random sequences. Rank 0 prints one JSON line with the median step of the last half.
"""
import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_common import Shape, load_run_config, median_of_last_half  # noqa: E402
from torch_models import rope_table, rotate  # noqa: E402

ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def linear(rows, columns):
    return nn.Linear(columns, rows, bias=False)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        d, query, key = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.head_dim, self.grouped = shape.head_dim, shape.heads != shape.kv_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = linear(query, d), linear(key, d), linear(key, d), linear(d, query)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        split = lambda t: t.view(batch, length, -1, self.head_dim)
        q = rotate(split(self.q_proj(x)), cos, sin).transpose(1, 2)
        k = rotate(split(self.k_proj(x)), cos, sin).transpose(1, 2)
        v = split(self.v_proj(x)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj, self.up_proj = linear(shape.ffn, shape.width), linear(shape.ffn, shape.width)
        self.down_proj = linear(shape.width, shape.ffn)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(shape.width, eps=shape.eps) for _ in range(2))
        self.self_attn, self.mlp = Attention(shape), Mlp(shape)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.eps)
        self.lm_head = linear(shape.vocab, shape.width)

    def forward(self, tokens, cos, sin):
        x = self.embed_tokens(tokens) * 1.0  # a plain tensor, not one of a pending collective
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def parallelize(model, mesh):
    parallelize_module(model, mesh, {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_layouts=(Shard(1), None, None),
                                            desired_input_layouts=(Replicate(), None, None)),
            "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1))})


def mean_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="run config: bench/workloads/*.json")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    shape, on_gpu = Shape(load_run_config(args.config)), args.device.startswith("cuda")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    local = int(os.environ["LOCAL_RANK"])
    if on_gpu:
        torch.cuda.set_device(local)
    device = f"cuda:{local}" if on_gpu else "cpu"
    mesh = init_device_mesh("cuda" if on_gpu else "cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    dtype = torch.bfloat16
    torch.set_default_dtype(dtype)
    with torch.device("meta"):
        model = Llama(shape)
    torch.set_default_dtype(torch.float32)
    parallelize(model, mesh)
    model.to_empty(device=device)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=shape.init_std) if p.dim() == 2 else p.fill_(1)
    if args.asynchronous:
        from torch._inductor import config as compiler
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group

        compiler._micro_pipeline_tp = True
        enable_symm_mem_for_group(mesh.get_group().group_name)
    if not args.no_compile:
        for layer in model.layers:
            layer.compile(fullgraph=True)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu)
    cos, sin = (part.to(device) for part in rope_table(shape, shape.rope_theta, 1.0))
    tokens = torch.randint(0, shape.vocab, (shape.batch, shape.seq_len + 1)).to(device)
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    times = []
    for _ in range(args.steps):
        wait()
        begin = time.perf_counter()
        with sdpa_kernel(ATTENTION, set_priority=True), loss_parallel():
            loss = mean_loss(model(x, cos, sin), y)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        wait()
        times.append((time.perf_counter() - begin) * 1e3)
    step = median_of_last_half(times)
    value = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
    if dist.get_rank() == 0:
        print(json.dumps(dict(torch=torch.__version__, asynchronous=args.asynchronous, step_ms=step, loss=value.item(),
                              tokens_per_second=shape.batch * shape.seq_len / step * 1e3,
                              peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else 0)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
