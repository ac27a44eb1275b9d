#!/usr/bin/env python3
"""Writes quantized_folders.json beside this file: one layer of folders that other programs quantized, with its values.
GPTQ and AWQ are packed here by their definitions; bitsandbytes packs its own.

    pip install torch bitsandbytes
    python tests/reference/make_quantized_folders.py
"""

import json
import pathlib

import torch
from bitsandbytes import functional

LAYER = "model.layers.0.mlp.up_proj"
DTYPES = {torch.int32: "I32", torch.uint8: "U8", torch.int8: "I8", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def hex_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()


def case(config, tensors, values, packed):
    return {"config": config, "packed": packed, "shape": list(values.shape), "values": hex_of(values.float()),
            "tensors": [{"name": name, "dtype": DTYPES[t.dtype], "shape": list(t.shape), "bytes": hex_of(t)}
                        for name, t in tensors.items()]}


def stream(codes, bits):
    """A little-endian bit stream in int32 words, of the last axis."""
    rows = []
    for row in codes.tolist():
        whole = sum(code << (i * bits) for i, code in enumerate(row))
        rows.append([whole >> (32 * w) & 0xFFFFFFFF for w in range((len(row) * bits + 31) // 32)])
    return torch.tensor(rows, dtype=torch.int64).to(torch.int32)


def random_layer(rows, columns, group, bits, symmetric):
    groups = (columns + group - 1) // group
    codes = torch.randint(0, 2**bits, (rows, columns))
    zeros = torch.full((rows, groups), 2 ** (bits - 1)) if symmetric else torch.randint(0, 2**bits, (rows, groups))
    return codes, zeros, (torch.rand(rows, groups) * 0.02 + 0.001).half()


def values_of(codes, zeros, scales, group_of):
    return (codes - zeros[:, group_of]).float() * scales.float()[:, group_of]


def gptq(bits, rows, columns, group, symmetric=True, act_order=False, version="gptq", index=True, dynamic=None):
    size = columns if group == -1 else group
    codes, zeros, scales = random_layer(rows, columns, size, bits, symmetric)
    group_of = torch.arange(columns) // size
    if act_order:
        group_of = group_of[torch.randperm(columns)]
    words = stream(zeros.T, bits)
    if version == "gptq" and 32 % bits == 0:
        words -= sum(1 << shift for shift in range(0, 31, bits))
    elif version == "gptq":
        words = stream((zeros.T - 1) % 2**bits, bits)
    tensors = {"qweight": stream(codes, bits).T.contiguous(), "qzeros": words, "scales": scales.T.contiguous()}
    if index:
        tensors["g_idx"] = group_of.int()
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": act_order,
              "checkpoint_format": version}
    config |= {"bits": 4, "group_size": 32, "dynamic": dynamic} if dynamic else {}
    return case(config, {f"{LAYER}.{name}": t for name, t in tensors.items()}, values_of(codes, zeros, scales, group_of), not act_order)


def awq(version, rows, columns, group):
    codes, zeros, scales = random_layer(rows, columns, group, 4, False)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": version,
              "modules_to_not_convert": None}
    values = values_of(codes, zeros, scales, torch.arange(columns) // group)
    if version == "gemm":
        order = lambda t: t.reshape(t.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(t.shape)
        tensors = {"qweight": stream(order(codes.T), 4), "qzeros": stream(order(zeros.T), 4), "scales": scales.T.contiguous()}
    else:
        padded = torch.zeros(rows, 32, dtype=torch.int64)
        padded[:, :zeros.shape[1]] = zeros
        factors = torch.zeros(rows, 32, dtype=torch.float16)
        factors[:, :scales.shape[1]] = scales
        tensors = {"qweight": stream(codes, 4), "qzeros": stream(padded, 4), "scales": factors}
    return case(config, {f"{LAYER}.{name}": t for name, t in tensors.items()}, values, True)


def four_bits(kind, dtype, nested, rows, columns):
    weight = (torch.randn(rows, columns) * 0.05).to(dtype)
    codes, state = functional.quantize_4bit(weight, blocksize=64, compress_statistics=nested, quant_type=kind)
    parts = {f"{LAYER}.weight.{name}": t for name, t in state.as_dict(packed=True).items()}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind}
    return case(config, {f"{LAYER}.weight": codes} | parts, functional.dequantize_4bit(codes, state), False)


def eight_bits(rows, columns):
    codes, scales, _ = functional.int8_vectorwise_quant((torch.randn(rows, columns) * 0.05).half())
    config = {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}
    tensors = {f"{LAYER}.weight": codes, f"{LAYER}.SCB": scales, f"{LAYER}.weight_format": torch.tensor(0, dtype=torch.uint8)}
    return case(config, tensors, codes.float() * (scales / 127).reshape(-1, 1), True)


def main():
    torch.manual_seed(7)
    cases = [gptq(4, 8, 64, 32), gptq(4, 8, 64, 32, symmetric=False), gptq(4, 8, 64, 32, symmetric=False, version="gptq_v2"),
             gptq(4, 8, 64, 16, symmetric=False, act_order=True), gptq(4, 8, 48, 32), gptq(4, 8, 64, -1, index=False),
             gptq(8, 4, 32, 16, symmetric=False), gptq(2, 16, 32, 16, symmetric=False), gptq(3, 32, 32, 16),
             gptq(3, 32, 32, 16, symmetric=False, act_order=True), gptq(8, 4, 32, 16, dynamic={"+:.*up_proj": {"bits": 8, "group_size": 16}}),
             awq("gemm", 16, 64, 32), awq("gemv", 8, 128, 64),
             four_bits("nf4", torch.bfloat16, False, 8, 64), four_bits("nf4", torch.float32, True, 40, 64),
             four_bits("fp4", torch.float16, False, 8, 24), eight_bits(8, 32)]
    path = pathlib.Path(__file__).with_name("quantized_folders.json")
    path.write_text(json.dumps(cases).replace('{"config"', '\n{"config"') + "\n")


if __name__ == "__main__":
    main()
