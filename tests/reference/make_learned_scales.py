#!/usr/bin/env python3
"""Writes learned_scales.json beside this file: a linear layer whose weight is fake-quantized under trained scales (LSQ,
Esser et al., 2020), with the gradients that PyTorch's autograd finds.

Usage: make_learned_scales.py

All inputs are functions of their indices, so that a test computes them too (tests/recipes/learned_scales_test.cpp).
"""

import json
import math
import pathlib

import torch

torch.set_num_threads(1)

ROWS, OUT, IN = 12, 6, 32


def mixed(i):
    """An unsigned 32-bit number that looks random."""
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


def matrix(rows, columns, first):
    return torch.tensor([[((mixed(first + r * columns + c) >> 16) - 32768) / 2**15 for c in range(columns)]
                         for r in range(rows)])


class Round(torch.autograd.Function):
    """x + (round(x) - x) would leave the codes by a rounding, and with it their range."""

    @staticmethod
    def forward(context, x):
        return x.round()

    @staticmethod
    def backward(context, gradient):
        return gradient


def case(bits, group):
    groups = IN // group if group else 1
    lowest, highest = -2 ** (bits - 1), 2 ** (bits - 1) - 1
    x, dy = matrix(ROWS, IN, 1), matrix(ROWS, OUT, 50_000)
    w = matrix(OUT, IN, 10_000).requires_grad_()
    # Some groups clip, others do not.
    s = ((1.25 + matrix(OUT, groups, 90_000)) / (highest + 1)).requires_grad_()
    factor = 1 / math.sqrt((group or IN) * highest)
    # Of the value of s, with a gradient that is `factor` times smaller.
    scale = s * factor + (s - s * factor).detach()
    scaled = w.view(OUT, groups, -1) * (1 / scale).unsqueeze(-1)
    codes = Round.apply(scaled)
    # The gradient passes where the rounded code is in range, its ends included, as in TorchAO; that of clamp() leaves
    # the ends out since PyTorch 2.15.
    inside = (codes >= lowest) & (codes <= highest)
    value = (torch.where(inside, codes, codes.detach().clamp(lowest, highest)) * scale.unsqueeze(-1)).view(OUT, IN)
    y = x @ value.T
    y.backward(dy)
    clipped = int((~inside).sum())
    assert 0 < clipped < OUT * IN, clipped
    return {"y": y.flatten().tolist(), "dw": w.grad.flatten().tolist(), "ds": s.grad.flatten().tolist()}


cases = {f"int{bits} group {group}": case(bits, group) for bits in (2, 4, 8) for group in (0, 8)}
path = pathlib.Path(__file__).with_name("learned_scales.json")
path.write_text(json.dumps(cases, indent=1) + "\n")
