"""The peer of bench/cpu_training.py: the same Llama in PyTorch eager on the CPU.

Prints one JSON line: median step time, tokens/s, peak resident memory, last loss. Where the model and the optimizer
offer a faster documented switch (scaled_dot_product_attention, fused AdamW) it is on.
"""
import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, width, heads, ffn):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        y = self.norm1(x)
        split = lambda t: t.view(batch, length, self.heads, -1).transpose(1, 2)
        q, k, v = split(self.q(y)), split(self.k(y)), split(self.v(y))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab, args.width)
        self.layers = nn.ModuleList(Block(args.width, args.heads, args.ffn) for _ in range(args.layers))
        self.norm = nn.RMSNorm(args.width, eps=1e-5)
        self.head = nn.Linear(args.width, args.vocab, bias=False)
        dim = args.width // args.heads
        frequency = 1.0 / (10000.0 ** (torch.arange(0, dim, 2).float() / dim))
        angle = torch.outer(torch.arange(args.seq_len).float(), frequency)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos.to(x.dtype), self.sin.to(x.dtype))
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    for name, value in dict(vocab=256, width=128, heads=4, ffn=384, layers=4, seq_len=64, batch=12, steps=40,
                            threads=2).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--train", help="u8/u16/i32 token file for a real run; random tokens otherwise")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Llama(args)
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=0.02)
    if args.dtype == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    generator = torch.Generator().manual_seed(1)
    times = []
    for _ in range(args.steps):
        tokens = torch.randint(0, args.vocab, (args.batch, args.seq_len + 1), generator=generator)
        x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        start = time.perf_counter()
        loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        times.append(time.perf_counter() - start)
    step = statistics.median(times[len(times) // 4:])
    print(json.dumps(dict(
        step_ms=step * 1e3, tokens_per_second=args.batch * args.seq_len / step, loss=value,
        finite=math.isfinite(value), peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        torch=torch.__version__)))


if __name__ == "__main__":
    main()
