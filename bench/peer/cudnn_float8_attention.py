#!/usr/bin/env python3
"""Float8 attention of cuDNN's graphs (package nvidia-cudnn-frontend) next to PyTorch's cuDNN attention in bf16.

Causal, one scale a tensor, random normal inputs; prints ms, TFLOP/s and relative errors against bf16, or why cuDNN
refuses a shape or a dtype. Needs a GPU since Hopper, PyTorch and the package.
"""
import argparse
import math

import cudnn
import torch

DEVICE, E4M3, E5M2 = "cuda", torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
TYPES = {E4M3: cudnn.data_type.FP8_E4M3, E5M2: cudnn.data_type.FP8_E5M2, torch.float32: cudnn.data_type.FLOAT}
HANDLE = cudnn.create_handle()
SHAPES = [(2, 32, 8, 8192, 128), (16, 28, 4, 1024, 128), (4, 32, 8, 4096, 64)]  # batch, heads, KV heads, length, dim


def milliseconds(function, repeats=20):
    for _ in range(3):
        function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


def scalar(value=1.0):
    return torch.full((1, 1, 1, 1), float(value), device=DEVICE)


def quantized(x, dtype):
    scale = LARGEST[dtype] / x.abs().max().float()
    return (x.float() * scale).to(dtype), (1 / scale).reshape(1, 1, 1, 1)


def heads_last(batch, heads, length, dim, dtype):
    return torch.empty(batch, length, heads, dim, device=DEVICE, dtype=dtype).transpose(1, 2)


def planned(graph, tensors):
    """Executable of a described graph; tensors: graph tensor to storage."""
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(graph.get_workspace_size(), device=DEVICE, dtype=torch.uint8)
    return lambda: graph.execute(tensors, workspace, handle=HANDLE)


def new_graph():
    return cudnn.pygraph(io_data_type=cudnn.data_type.FP8_E4M3, intermediate_data_type=cudnn.data_type.FLOAT,
                         compute_data_type=cudnn.data_type.FLOAT, handle=HANDLE)


def described(graph, inputs):
    return {name: graph.tensor(dim=list(x.shape), stride=list(x.stride()), data_type=TYPES[x.dtype])
            for name, x in inputs.items()}


def output(tensor, storage):
    tensor.set_output(True).set_dim(list(storage.shape)).set_stride(list(storage.stride()))
    tensor.set_data_type(TYPES[storage.dtype])


def relative(actual, expected):
    return ((actual.float() - expected.float()).norm() / expected.float().norm()).item()


def report(name, flops, function):
    time = milliseconds(function)
    print(f"  {name}: {time:.3f} ms, {flops / time / 1e9:.0f} TFLOP/s", flush=True)


def measure(batch, heads, kv_heads, length, dim, gradient_dtype):
    scale, flops = 1 / math.sqrt(dim), 2 * batch * heads * length * length * dim
    make = lambda n: torch.randn(batch, length, n, dim, device=DEVICE).transpose(1, 2)
    q, k, v, dout = make(heads), make(kv_heads), make(kv_heads), make(heads) * 1e-3
    leaves = [x.bfloat16().requires_grad_() for x in (q, k, v)]
    attention = lambda: torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    print(f"[{batch}, {heads}({kv_heads}), {length}, {dim}]", flush=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        out = attention()
        backward = lambda: torch.autograd.grad(out, leaves, dout.bfloat16(), retain_graph=True)
        gradients = backward()
        report("bf16 forward", flops, attention)
        report("bf16 backward", 2.5 * flops, backward)
    out_amax = out.abs().max().item()
    codes = {name: quantized(x, E4M3) for name, x in (("q", q), ("k", k), ("v", v))}
    inputs = {name: codes[name][0] for name in codes} | {f"descale_{name}": codes[name][1] for name in codes}
    inputs |= {"descale_s": scalar(1 / 256), "scale_s": scalar(256)}
    forward = inputs | {"scale_o": scalar(448 / out_amax)}
    graph = new_graph()
    named = described(graph, forward)
    storage = [heads_last(batch, heads, length, dim, E4M3), torch.empty(batch, heads, length, 1, device=DEVICE),
               scalar(), scalar()]
    outputs = graph.sdpa_fp8(**named, is_inference=False, attn_scale=scale, use_causal_mask=True)
    for tensor, place in zip(outputs, storage):
        output(tensor, place)
    report("float8 forward", flops, planned(graph, {named[n]: forward[n] for n in named} | dict(zip(outputs, storage))))
    print(f"  error of the output: {relative(storage[0].float() * out_amax / 448, out):.4f}", flush=True)
    dp_amax = 10 * (dout.abs().max() * v.abs().max()).item()
    dout_codes, dout_descale = quantized(dout, gradient_dtype)
    scales = [448 / x.abs().max().item() for x in gradients]
    inputs |= {"o": storage[0], "dO": dout_codes, "stats": storage[1], "descale_o": scalar(out_amax / 448),
               "descale_dO": dout_descale, "descale_dP": scalar(dp_amax / 448), "scale_dP": scalar(448 / dp_amax)}
    inputs |= {f"scale_d{name}": scalar(s) for name, s in zip("QKV", scales)}
    graph = new_graph()
    named = described(graph, inputs)
    places = [heads_last(batch, n, length, dim, E4M3) for n in (heads, kv_heads, kv_heads)]
    outputs = graph.sdpa_fp8_backward(**named, attn_scale=scale, use_causal_mask=True)
    storage = places + [scalar() for _ in range(4)]
    for tensor, place in zip(outputs, storage):
        output(tensor, place)
    report("float8 backward", 2.5 * flops,
           planned(graph, {named[n]: inputs[n] for n in named} | dict(zip(outputs, storage))))
    errors = [relative(x.float() / s, g) for x, s, g in zip(places, scales, gradients)]
    print("  errors of dq, dk, dv:", ", ".join(f"{e:.4f}" for e in errors), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradient", choices=("e4m3", "e5m2"), default="e4m3", help="dtype of the output gradient")
    args = parser.parse_args()
    for shape in SHAPES:
        try:
            measure(*shape, E4M3 if args.gradient == "e4m3" else E5M2)
        except Exception as error:  # cuDNN's reason
            print(f"  refused: {' '.join(str(error).split())[:300]}", flush=True)


if __name__ == "__main__":
    main()
