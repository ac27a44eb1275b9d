"""Writes grpo.json: losses, gradients and metrics of TRL's GRPOTrainer, and advantages, for random log-probabilities.

    pip install torch trl==1.16.0 transformers==5.24.0 datasets==5.2.0
    python tests/reference/make_grpo.py

GRPOTrainer._compute_loss runs on a stand-in for the trainer, with log-probabilities in f64 in place of a model's.
Advantages are computed by the formulas of GRPOTrainer (group, batch, none) and RLOOTrainer (leave_one_out).
Read by tests/train/objective/grpo_loss_test.cpp.
"""

import collections
import itertools
import json
import pathlib
import types

import torch
from trl import GRPOTrainer

OUTPUT = pathlib.Path(__file__).parent / "grpo.json"
MAX_COMPLETION = 9
LENGTHS = [6, 3, 1, 5]

torch.manual_seed(57)
torch.set_default_dtype(torch.float64)
count, longest = len(LENGTHS), max(LENGTHS)
mask = torch.tensor([[1.0 if t < length else 0.0 for t in range(longest)] for length in LENGTHS])
logps = -3 * torch.rand(count, longest)
old = logps + 0.3 * torch.randn(count, longest)
reference = logps + 0.5 * torch.randn(count, longest)
advantages = torch.tensor([1.3, -0.7, 0.4, -1.0])


def trainer(loss_type, level, beta, low, high):
    self = types.SimpleNamespace(
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level=level, beta=beta, loss_type=loss_type, epsilon_low=low, epsilon_high=high,
        use_vllm=False, vllm_importance_sampling_correction=False, max_completion_length=MAX_COMPLETION,
        current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False,
        model=types.SimpleNamespace(training=True),
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        accelerator=types.SimpleNamespace(num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x),
        _metrics={"train": collections.defaultdict(list)},
    )
    return self


def row(values):
    return [values[i, : LENGTHS[i]].tolist() for i in range(count)]


cases = []
for loss_type, level, beta, (low, high) in itertools.product(
    ["grpo", "dapo", "dr_grpo"], ["token", "sequence"], [0.0, 0.04], [(0.2, 0.2), (0.1, 0.28)]
):
    current = logps.clone().requires_grad_()
    self = trainer(loss_type, level, beta, low, high)
    self._get_per_token_logps_and_entropies = lambda *args, **kwargs: (current, torch.zeros_like(current), None)
    ids = torch.zeros(count, longest, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids, "completion_mask": mask,
        "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(self, self.model, inputs)
    loss.backward()
    metrics = self._metrics["train"]
    cases.append({
        "loss_type": loss_type, "level": level, "beta": beta, "epsilon": low, "epsilon_high": high,
        "loss": loss.item(), "gradient": row(current.grad),
        "kl": metrics["kl"][0] if beta else None, "clipped": metrics["clip_ratio/region_mean"][0],
    })

rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.25, 2.0, -1.0, 0.5], [1.0, 1.0, 1.0, 1.0]])
mean, size = rewards.mean(1, keepdim=True), rewards.shape[1]
scales = {"group": rewards.std(1, keepdim=True) + 1e-4, "batch": rewards.std() + 1e-4, "none": torch.ones(1)}
others = (rewards.sum(1, keepdim=True) - rewards) / (size - 1)
result = {
    "max_completion_length": MAX_COMPLETION, "logps": row(logps), "old": row(old), "reference": row(reference),
    "advantages": advantages.tolist(), "cases": cases, "rewards": rewards.tolist(),
    "scaled": {
        baseline: {scale: ((rewards - base) / by).tolist() for scale, by in scales.items()}
        for baseline, base in [("mean", mean), ("leave_one_out", others)]
    },
}
OUTPUT.write_text(json.dumps(result, indent=1) + "\n")
