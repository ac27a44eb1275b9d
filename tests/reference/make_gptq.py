#!/usr/bin/env python3
"""Writes gptq.json beside this file: codes and scales of GPTQ as TorchAO (0.18) computes them.

Usage: make_gptq.py

Weight and inputs are functions of their indices, so that a test computes them too (tests/export/methods/gptq_reference_test.cpp).
TorchAO's function wants a GPU and compiled casts only; the checks for that are taken out here, its arithmetic is not.
"""

import inspect
import json
import pathlib
import textwrap

import torch
import torchao.prototype.gptq.api as api
from torchao.prototype.mx_formats.inference_workflow import NVFP4DynamicActivationNVFP4WeightConfig
from torchao.prototype.mx_formats.utils import from_blocked
from torchao.quantization.quant_api import Int8WeightOnlyConfig

ROWS, COLUMNS, INPUTS = 16, 256, 300


def mixed(i):
    """An unsigned 32-bit number that looks random."""
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


weight = torch.tensor([[((mixed(r * COLUMNS + c + 1) >> 16) - 32768) / 2**20 for c in range(COLUMNS)] for r in range(ROWS)])
small = lambda i: (mixed(i) >> 28) - 8
inputs = torch.tensor([[float((1 + c % 4) * (small(100_000 + r * COLUMNS + c) + 2 * small(900_000 + r)))
                        for c in range(COLUMNS)] for r in range(INPUTS)])
hessian = 2 / INPUTS * (inputs.T @ inputs)

source = textwrap.dedent(inspect.getsource(api.gptq_quantize))
for line in ('assert device.type == "cuda", "GPTQ only supports CUDA currently"', "torch.cuda.synchronize()"):
    assert line in source, line
    source = source.replace(line, "")
api._nvfp4_qdq_fn = api._nvfp4_with_precalculated_scales_qdq
api._nvfp4_q_fn = api._nvfp4_with_precalculated_scales_q
exec(source, api.__dict__)


def quantized(base):
    config = api.GPTQConfig(step="convert", base_config=base)
    return api.gptq_quantize(hessian.clone(), weight.clone(), config)


int8 = quantized(Int8WeightOnlyConfig(version=2))
nvfp4 = quantized(NVFP4DynamicActivationNVFP4WeightConfig(use_dynamic_per_tensor_scale=True))
scale = nvfp4.scale
if nvfp4.is_swizzled_scales:
    scale = from_blocked(scale.view(torch.uint8).flatten(), ROWS, COLUMNS // 16).view(torch.float8_e4m3fn)
reference = {
    "int8": {"codes": bytes(int8.qdata.numpy().tobytes()).hex(), "scales": int8.scale.numpy().tobytes().hex()},
    "nvfp4": {
        "codes": bytes(nvfp4.qdata.view(torch.uint8).numpy().tobytes()).hex(),
        "scales": bytes(scale.contiguous().view(torch.uint8).numpy().tobytes()).hex(),
    },
}
path = pathlib.Path(__file__).with_name("gptq.json")
path.write_text(json.dumps(reference, indent=1) + "\n")
print(f"wrote {path.name}")
