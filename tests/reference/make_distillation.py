#!/usr/bin/env python3
"""Writes distillation.json next to this file: divergences of teacher and student logits, mixed with cross-entropy, and
their gradients by PyTorch's autograd, over the vocabulary and over the teacher's most probable tokens with one outcome
for all others; distances of hidden states and their gradients. KL divergences are torch.nn.functional.kl_div's; the Jensen-Shannon divergence is
that of TRL's GKDTrainer (pip install trl).

Usage: make_distillation.py
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F
from trl import GKDTrainer

torch.set_num_threads(1)
ROWS, VOCAB = 4, 37


def mixed(i):
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


def matrix(first):
    return torch.tensor([[((mixed(first + r * VOCAB + c) >> 16) - 32768) / 2**13 for c in range(VOCAB)]
                         for r in range(ROWS)])


def divergence(name, student, teacher, temperature, beta):
    q, p = F.log_softmax(student / temperature, -1), F.log_softmax(teacher / temperature, -1)
    if name == "forward_kl":
        return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    if name == "reverse_kl":
        return F.kl_div(p, q, reduction="none", log_target=True).sum(-1)
    return torch.stack([GKDTrainer.generalized_jsd_loss(student[None, i:i + 1], teacher[None, i:i + 1], beta=beta,
                                                        temperature=temperature, reduction="sum")
                        for i in range(ROWS)])


def log_outcomes(logits, kept, temperature):
    """Logits at temperature 1 of K + 1 outcomes: the kept tokens, and the others as one."""
    log_probs = F.log_softmax(logits / temperature, -1)
    others = torch.ones_like(log_probs).scatter(-1, kept, 0).bool()
    tail = torch.stack([row[mask].logsumexp(-1) for row, mask in zip(log_probs, others)])
    return torch.cat([log_probs.gather(-1, kept), tail[:, None]], -1)


def case(name, temperature, beta, ratio, top_k=None):
    student, teacher = matrix(1).double().requires_grad_(), matrix(50_000).double()
    labels = torch.tensor([3, 0, 36, 11])
    if top_k is None:
        d = divergence(name, student, teacher, temperature, beta)
    else:
        kept = teacher.topk(top_k).indices
        d = divergence(name, log_outcomes(student, kept, temperature), log_outcomes(teacher, kept, temperature), 1.0,
                       beta)
    losses = (1 - ratio) * F.cross_entropy(student, labels, reduction="none") + ratio * temperature**2 * d
    (gradient,) = torch.autograd.grad(losses.sum(), student)
    assert all(math.isfinite(x) for x in gradient.flatten())
    return dict(divergence=name, temperature=temperature, beta=beta, ratio=ratio, **({"top_k": top_k} if top_k else {}),
                losses=losses.tolist(),
                divergences=d.tolist(), gradient=[round(x, 12) for x in gradient.flatten().tolist()])


def hidden_case(name):
    student, teacher = matrix(1).double().requires_grad_(), matrix(50_000).double()
    if name == "mse":
        losses = F.mse_loss(student, teacher, reduction="none").mean(-1)
    elif name == "cosine":
        losses = 1 - F.cosine_similarity(student, teacher, dim=-1)
    else:
        losses = F.mse_loss(student, teacher, reduction="none").sum(-1) / teacher.square().sum(-1)
    (gradient,) = torch.autograd.grad(losses.sum(), student)
    return dict(distance=name, losses=losses.tolist(), gradient=[round(x, 12) for x in gradient.flatten().tolist()])


def main():
    cases = [case("forward_kl", 1.0, 0.5, 1.0), case("forward_kl", 2.0, 0.5, 0.5), case("reverse_kl", 1.0, 0.5, 1.0),
             case("reverse_kl", 0.5, 0.5, 0.25), case("jensen_shannon", 1.0, 0.5, 1.0),
             case("jensen_shannon", 2.0, 0.1, 0.75), case("jensen_shannon", 1.0, 0.9, 1.0)]
    kept = [case("forward_kl", 1.0, 0.5, 1.0, 8), case("forward_kl", 2.0, 0.5, 0.5, 1),
            case("reverse_kl", 0.5, 0.5, 0.25, 5), case("jensen_shannon", 2.0, 0.1, 0.75, 16)]
    hidden = [hidden_case(name) for name in ("mse", "cosine", "normalized_mse")]
    target = pathlib.Path(__file__).with_name("distillation.json")
    target.write_text(json.dumps(dict(torch=torch.__version__, cases=cases, top_k=kept, hidden=hidden), indent=1) + "\n")


if __name__ == "__main__":
    main()
