#!/usr/bin/env python3
"""What the power limit of a card does to attention: the time of cuDNN's backward pass in PyTorch alone, and between matrix
products that keep the card at its limit, with the clock that nvidia-smi reports meanwhile.

Shapes of the workload 8b-l8: [2, 32(8), 8192, 128] and a product of 16384 x 28672 x 4096.
"""
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SECONDS = 2.5


def clock_and_power():
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()


def timed(events, call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    events.append((begin, end))


def median_ms(events):
    return statistics.median(begin.elapsed_time(end) for begin, end in events) if events else float("nan")


def main():
    def heads(n):
        x = torch.randn(2, 8192, n, 128, device="cuda", dtype=torch.bfloat16)
        return x.transpose(1, 2).requires_grad_()

    q, k, v = heads(32), heads(8), heads(8)
    a = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(28672, 4096, device="cuda", dtype=torch.bfloat16)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        gradient = torch.randn_like(out)
        for products in (0, 2, 6):
            attention, gemm, seen = [], [], ""
            start = time.time()
            while time.time() - start < SECONDS:
                for _ in range(products):
                    timed(gemm, lambda: torch.mm(a, w.t()))
                timed(attention, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
                if len(attention) % 10 == 0:
                    if len(attention) % 100 == 0:
                        seen = clock_and_power()  # while work is queued
                    torch.cuda.synchronize()
            torch.cuda.synchronize()
            print(f"{products} products between: attention backward {median_ms(attention):.3f} ms, "
                  f"product {median_ms(gemm):.3f} ms, {seen}")


if __name__ == "__main__":
    main()
