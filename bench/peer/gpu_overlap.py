#!/usr/bin/env python3
"""Whether passes over memory can hide behind matrix products on a card at its power limit.

A step of the shapes of the workload 8b-l8 (products of the layers and of the head, cuDNN attention) with an AdamW-like pass
over 2.35 billion bf16 parameters: left out, after the step on the same stream, and beside the next step's forward pass on
a stream of its own, by kernels of various widths. Milliseconds of a step, the median of the second half of three seconds.
"""
import argparse
import statistics
import time

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, WIDTH, INNER, QKV, VOCABULARY, LAYERS = 16384, 4096, 14336, 6144, 128256, 8
PARAMETERS_OF_LAYER = 280 << 20
SHAPES = [(TOKENS, QKV, WIDTH), (TOKENS, WIDTH, WIDTH), (TOKENS, 2 * INNER, WIDTH), (TOKENS, WIDTH, INNER)]


@triton.jit
def update_kernel(p, g, m, v, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), n // BLOCK, tl.num_programs(0)):
        at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        gradient = tl.load(g + at).to(tl.float32)
        mean = tl.load(m + at).to(tl.float32) * 0.9 + gradient * 0.1
        square = tl.load(v + at).to(tl.float32) * 0.95 + gradient * gradient * 0.05
        weight = tl.load(p + at).to(tl.float32) - 1e-4 * mean / (tl.sqrt(square) + 1e-8)
        tl.store(p + at, weight.to(tl.bfloat16))
        tl.store(m + at, mean.to(tl.bfloat16))
        tl.store(v + at, square.to(tl.bfloat16))


class Step:
    def __init__(self, float8):
        def random(rows, columns, dtype):
            return torch.randn(rows, columns, device="cuda").to(dtype)

        dtype = torch.float8_e4m3fn if float8 else torch.bfloat16
        self.float8 = float8
        self.one = torch.ones((), device="cuda")
        self.operands = {s: (random(s[0], s[2], dtype), random(s[1], s[2], dtype))
                         for m, n, k in SHAPES for s in ((m, n, k), (m, k, n), (n, k, m))}
        self.state = [torch.randn(PARAMETERS_OF_LAYER, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
        self.state[3].abs_()
        heads = lambda n: torch.randn(2, n, 8192, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        self.q, self.k, self.v = heads(32), heads(8), heads(8)
        self.hidden = random(TOKENS, WIDTH, torch.bfloat16)
        self.head = random(VOCABULARY, WIDTH, torch.bfloat16)
        self.side = torch.cuda.Stream()

    def product(self, shape):
        a, b = self.operands[shape]
        if self.float8:
            return torch._scaled_mm(a, b.t(), self.one, self.one, out_dtype=torch.bfloat16, use_fast_accum=False)
        return a @ b.t()

    def attention(self):
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            return torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=True, enable_gqa=True)

    def update(self, blocks, warps):
        update_kernel[(blocks,)](*self.state, PARAMETERS_OF_LAYER, BLOCK=warps * 512, num_warps=warps)

    def run(self, where, blocks=1056, warps=8):
        main = torch.cuda.current_stream()
        updated = []
        if where == "beside":
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                for _ in range(LAYERS):
                    self.update(blocks, warps)
                    updated.append(self.side.record_event())
        outputs = []
        for layer in range(LAYERS):
            if updated:
                main.wait_event(updated[layer])
            self.product(SHAPES[0])
            outputs.append(self.attention())
            for shape in SHAPES[1:]:
                self.product(shape)
        for rows in self.hidden.split(4096):
            logits = rows @ self.head.t()
            logits @ self.head
            logits.t() @ rows
        for out in outputs:
            for m, n, k in reversed(SHAPES):
                self.product((m, k, n))
                self.product((n, k, m))
            torch.autograd.grad(out, (self.q, self.k, self.v), out.detach())
        if where == "after":
            for _ in range(LAYERS):
                self.update(blocks, warps)

    def milliseconds(self, *how):
        times, start = [], time.time()
        while time.time() - start < 3:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self.run(*how)
            self.run(*how)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 2)
        return statistics.median(times[len(times) // 2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bf16", action="store_true", help="products of bf16 instead of float8")
    step = Step(float8=not parser.parse_args().bf16)
    step.milliseconds("none")  # brings the card to its limit
    for how in (("none",), ("after",), ("beside", 1056, 8), ("beside", 132, 8), ("beside", 66, 16), ("beside", 16, 16)):
        print(f"{' '.join(map(str, how)):16} {step.milliseconds(*how):.1f} ms", flush=True)


if __name__ == "__main__":
    main()
