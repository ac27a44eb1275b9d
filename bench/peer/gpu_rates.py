"""What this GPU sustains at the shapes of a workload, measured through PyTorch's libraries: the speed of light of its
training step.

One JSON line with the terms, all of one optimizer step in milliseconds:
  gemms      the three products (forward, gradient of the input, of the weight) of every linear layer and the head,
             bf16, random data; of cuBLAS and cuBLASLt, and of projections apart and joined (q|k|v, gate|up), the faster
  attention  causal forward and backward, the fastest of PyTorch's back ends; layers with a sliding window at the same
             rate, for the keys inside
  optimizer  bytes over the rate of a device copy (read + written): 2-byte weights, both moments read and written,
             gradients read twice (norm, update): 16 bytes a parameter
Rates are taken after two seconds of load and over a stretch without gaps, because the clock falls under load.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_common import Shape, load_run_config  # noqa: E402

BYTES_PER_PARAMETER = 16


def normal(*shape, device):
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)


class Timer:
    def __init__(self, device, seconds):
        self.device, self.seconds = device, seconds
        self.gpu = device.startswith("cuda")

    def once(self, function, count):
        if not self.gpu:
            start = time.perf_counter()
            for _ in range(count):
                function()
            return (time.perf_counter() - start) / count
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count / 1e3

    def sustained(self, function, seconds=None):
        """Seconds of one call, over a stretch of about `seconds`."""
        function()
        rough = self.once(function, 3)
        return self.once(function, max(3, int((seconds or self.seconds) / rough)))


def products(m, n, k, device):
    """The three products of y[m,n] = x[m,k] w[n,k]^T, as calls."""
    x, w, dy = normal(m, k, device=device), normal(n, k, device=device), normal(m, n, device=device)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)
    return {"forward": lambda: torch.mm(x, w.t(), out=y), "dgrad": lambda: torch.mm(dy, w, out=dx),
            "wgrad": lambda: torch.mm(dy.t(), x, out=dw)}


def time_products(timer, m, n, k):
    """Seconds of each product, by the faster library."""
    best = {}
    calls = products(m, n, k, timer.device)
    for library in ("cublas", "cublaslt") if timer.gpu else ("cpu",):
        if timer.gpu:
            torch.backends.cuda.preferred_blas_library(library)
        for name, call in calls.items():
            best[name] = min(best.get(name, float("inf")), timer.sustained(call))
    return best


def linear_groups(shape):
    """Groups of linear layers with one input: name, output widths, input width, how often in a forward pass."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return [("q|k|v", (query, key, key), shape.width, shape.layers), ("o", (shape.width,), query, shape.layers),
            ("gate|up", (shape.ffn, shape.ffn), shape.width, shape.layers), ("down", (shape.width,), shape.ffn, shape.layers),
            ("head", (shape.vocab,), shape.width, 1)]


def gemm_terms(timer, shape, cache):
    m, terms = shape.batch * shape.seq_len, []

    def measure(n, k):
        if (m, n, k) not in cache:
            cache[m, n, k] = time_products(timer, m, n, k)
        return cache[m, n, k]

    for name, widths, k, count in linear_groups(shape):
        apart = {}
        for n in widths:
            for product, seconds in measure(n, k).items():
                apart[product] = apart.get(product, 0.0) + seconds
        joined = measure(sum(widths), k) if len(widths) > 1 else apart
        flops = 2 * m * sum(widths) * k
        seconds = {product: min(apart[product], joined[product]) for product in apart}
        terms.append(dict(name=name, m=m, n=list(widths), k=k, count=count * shape.accumulation,
                          tflops={product: flops / s / 1e12 for product, s in seconds.items()},
                          ms=sum(seconds.values()) * count * shape.accumulation * 1e3))
    return terms


def attention_term(timer, shape):
    device, grouped = timer.device, shape.heads != shape.kv_heads
    make = lambda heads: normal(shape.batch, shape.seq_len, heads, shape.head_dim, device=device).transpose(1, 2).requires_grad_()
    q, k, v = make(shape.heads), make(shape.kv_heads), make(shape.kv_heads)
    gradient = normal(shape.batch, shape.heads, shape.seq_len, shape.head_dim, device=device)
    attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    best = None
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        try:
            with sdpa_kernel(backend):
                with torch.no_grad():
                    forward = timer.sustained(attend)
                out = attend()
                backward = timer.sustained(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
        except RuntimeError as error:
            print(f"{backend}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        if best is None or forward + backward < sum(best[1:]):
            best = (backend.name, forward, backward)
    if best is None:
        raise SystemExit("no attention back end takes this shape")
    name, forward, backward = best
    # Causal: half of 4 B H T^2 D multiply-adds' FLOPs forward, 2.5 times that backward.
    flops = 2 * shape.batch * shape.heads * shape.seq_len**2 * shape.head_dim
    count = shape.layers * shape.accumulation
    share = sum(shape.attended(window) for window in shape.windows) / (shape.layers * shape.attended(0))
    return dict(backend=name, count=count, tflops=dict(forward=flops / forward / 1e12, backward=2.5 * flops / backward / 1e12),
                ms=(forward + backward) * share * count * 1e3)


def copy_bandwidth(timer, nbytes):
    a = torch.empty(nbytes, dtype=torch.uint8, device=timer.device).random_()
    b = torch.empty_like(a)
    return 2 * nbytes / timer.sustained(lambda: b.copy_(a), 4 * timer.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", nargs="+", required=True, help="run configs: bench/workloads/*.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds of load before the first rate")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of each measured stretch")
    parser.add_argument("--copy-bytes", type=int, default=4 << 30)
    args = parser.parse_args()
    timer, cache = Timer(args.device, args.seconds), {}
    bandwidth = copy_bandwidth(timer, args.copy_bytes)
    for path in args.config:
        shape = Shape(load_run_config(path))
        timer.sustained(products(shape.batch * shape.seq_len, shape.ffn, shape.width, args.device)["forward"], args.warm)
        gemms = gemm_terms(timer, shape, cache)
        attention = attention_term(timer, shape)
        nbytes = BYTES_PER_PARAMETER * shape.parameters
        optimizer = dict(bytes=nbytes, ms=nbytes / bandwidth * 1e3)
        total = sum(term["ms"] for term in gemms) + attention["ms"] + optimizer["ms"]
        print(json.dumps(dict(config=str(path), copy_bytes_per_second=bandwidth, gemms=gemms, attention=attention,
                              optimizer=optimizer, step_ms=total,
                              tokens_per_second=shape.tokens_per_step / total * 1e3)), flush=True)


if __name__ == "__main__":
    main()
