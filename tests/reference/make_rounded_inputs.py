#!/usr/bin/env python3
"""Writes rounded_inputs.json beside this file: inputs of products as compressed-tensors (0.20) and TorchAO (0.18) see
them, through codes and back.

Usage: make_rounded_inputs.py

The matrix is a function of its indices, so that a test computes it too (tests/export/ptq/quantize_inputs_test.cpp). Of the
values of each row there is a checksum (FNV-1a of the bytes of f32, 64 bits; zeros have no sign).
"""

import json
import pathlib

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp
from torchao.quantization.quant_primitives import (
    MappingType,
    choose_qparams_affine,
    dequantize_affine,
    quantize_affine,
)

ROWS, COLUMNS = 64, 256
STATIC_SCALES = {"int": 17.5 / 127.5, "float": 13 / 448}  # scales of calibrated inputs, in f32


def mixed(i):
    """An unsigned 32-bit number that looks random."""
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


def element(r, c):
    """A few bits of mantissa, as bf16 has: quotients are often ties."""
    bits = mixed(r * COLUMNS + c + 1)
    return (bits % (2 * r + 65) - (r + 40)) / 2 ** (bits >> 30)


def checksums(values):
    sums = []
    for row in (values + 0.0).contiguous().view(torch.uint8):
        value = 0xCBF29CE484222325
        for byte in row.tolist():
            value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        sums.append(f"{value:016x}")
    return sums


def compressed(x, **args):
    args = QuantizationArgs(**args)
    if args.dynamic:
        # A batch of one sequence, as models have it.
        scale, zero_point = compute_dynamic_scales_and_zp(x[None], args, torch.nn.Module())
        return fake_quantize(x[None], scale, zero_point, args)[0]
    return fake_quantize(x, torch.tensor([STATIC_SCALES[args.type]]), None, args)


def torchao_int8(x, mapping):
    block = (1, COLUMNS)
    kinds = {"target_dtype": torch.int8, "quant_min": -128, "quant_max": 127}
    scale, zero_point = choose_qparams_affine(x, mapping, block, eps=torch.finfo(torch.float32).eps, **kinds)
    codes = quantize_affine(x, block, scale, zero_point, torch.int8, -128, 127)
    return dequantize_affine(codes, block, scale, zero_point, torch.int8, -128, 127, output_dtype=x.dtype)


x = torch.tensor([[element(r, c) for c in range(COLUMNS)] for r in range(ROWS)])
token = {"strategy": "token", "dynamic": True}
made = {
    "compressed-tensors": {
        "int8dyn_int8": compressed(x, num_bits=8, type="int", symmetric=True, **token),
        "int8dyn_int4_g32": compressed(x, num_bits=8, type="int", symmetric=False, **token),
        "int8static_int8": compressed(x, num_bits=8, type="int", symmetric=True, strategy="tensor"),
        "float8_dynamic": compressed(x, num_bits=8, type="float", symmetric=True, **token),
        "float8_dynamic_block": compressed(
            x, num_bits=8, type="float", symmetric=True, strategy="group", group_size=128, dynamic=True
        ),
        "float8_static": compressed(x, num_bits=8, type="float", symmetric=True, strategy="tensor"),
    },
    "torchao": {
        "int8dyn_int8": torchao_int8(x, MappingType.SYMMETRIC),
        "int8dyn_int4_g32": torchao_int8(x, MappingType.ASYMMETRIC),
    },
}
# Otherwise they would not tell the two apart, nor a quotient from a product with the reciprocal.
for scheme, values in made["torchao"].items():
    assert not torch.equal(values, made["compressed-tensors"][scheme]), scheme
for scheme, kind, lowest, highest, rounded in [
    ("int8static_int8", "int", -128, 127, torch.round),
    ("float8_static", "float", -448, 448, lambda v: v.to(torch.float8_e4m3fn).float()),
]:
    scale = torch.tensor(STATIC_SCALES[kind])
    product = rounded((x * (1 / scale)).clamp(lowest, highest)) * scale
    assert not torch.equal(product, made["compressed-tensors"][scheme]), scheme
pathlib.Path(__file__).with_name("rounded_inputs.json").write_text(
    json.dumps({who: {s: checksums(v) for s, v in schemes.items()} for who, schemes in made.items()}, indent=1) + "\n"
)
