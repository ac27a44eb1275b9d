"""Writes preferences.json and preferences.safetensors: losses, rewards and gradients of TRL's preference trainers.

    pip install torch trl==0.24.0 transformers==4.57.3 datasets==4.4.1 safetensors
    python tests/reference/make_preferences.py

Model: tests/golden/models/llama. Answers are token ids below its vocabulary. The reference model is the same one with
noise; its log-probabilities are recorded. "curve": DPOTrainer over 50 steps, from the model itself as reference.
Read by tests/train/objective/preference_golden_test.cpp and tests/train/run/preference_curve_test.cpp.
"""

import copy
import json
import pathlib
import types

import datasets
import tokenizers
import torch
import transformers
import trl
from safetensors.torch import save_file
from trl.trainer.kto_trainer import _get_kl_dataset

HERE = pathlib.Path(__file__).parent
FOLDER = HERE.parent / "golden" / "models" / "llama"
GRADIENTS = ["model.norm.weight", "model.layers.0.self_attn.q_proj.weight", "lm_head.weight"]
PAD = 0

torch.manual_seed(20271)
model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")
reference = copy.deepcopy(model)
with torch.no_grad():
    for parameter in reference.parameters():
        parameter.add_(0.05 * parameter.std() * torch.randn_like(parameter))
vocabulary = model.config.vocab_size


def ids(low, high, count):
    return torch.randint(low, high, (count,)).tolist()


# Lengths differ within a pair and between pairs.
pairs = [{"prompt": ids(3, vocabulary, 3 + i), "chosen": ids(3, vocabulary, 2 + 2 * i % 7),
          "rejected": ids(3, vocabulary, 3 + 3 * i % 5)} for i in range(4)]
labels = [{"prompt": ids(3, vocabulary, 2 + i), "completion": ids(3, vocabulary, 3 + 2 * i % 5), "label": i % 3 != 1}
          for i in range(5)]


def padded(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def accelerator():
    return types.SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda x: x)


def bare(kind, **attributes):
    """A trainer for its loss alone, without data, optimizer and outputs."""
    trainer = object.__new__(kind)
    common = dict(is_encoder_decoder=False, aux_loss_enabled=False, pad_token_id=PAD, padding_value=PAD,
                  label_pad_token_id=-100, max_length=None, accelerator=accelerator(), label_smoothing=0.0,
                  is_vision_model=False, use_weighting=False, _peft_has_been_casted_to_bf16=False)
    for name, value in {**common, **attributes}.items():
        setattr(trainer, name, value)
    return trainer


def dpo_batch():
    batch = {}
    for key in ("prompt", "chosen", "rejected"):
        rows = [pair[key] for pair in pairs]
        if key == "prompt":  # padded on the left
            longest = max(map(len, rows))
            batch["prompt_input_ids"] = torch.tensor([[PAD] * (longest - len(r)) + r for r in rows])
            batch["prompt_attention_mask"] = torch.tensor([[0] * (longest - len(r)) + [1] * len(r) for r in rows])
        else:
            batch[f"{key}_input_ids"] = padded(rows, PAD)
            batch[f"{key}_attention_mask"] = padded([[1] * len(r) for r in rows], 0)
    return batch


def whole_batch():
    """Of ORPOTrainer and CPOTrainer."""
    batch = {}
    for key in ("chosen", "rejected"):
        rows = [pair["prompt"] + pair[key] for pair in pairs]
        batch[f"{key}_input_ids"] = padded(rows, PAD)
        batch[f"{key}_attention_mask"] = padded([[1] * len(r) for r in rows], 0)
        batch[f"{key}_labels"] = padded([[-100] * len(p["prompt"]) + p[key] for p in pairs], -100)
    return batch


def kto_batch():
    answers = _get_kl_dataset({"answer_input_ids": [x["completion"] for x in labels],
                               "answer_attention_mask": [[1] * len(x["completion"]) for x in labels]})
    batch = {"label": [x["label"] for x in labels]}
    for prefix, completions in (("", [x["completion"] for x in labels]), ("KL_", answers["answer_input_ids"])):
        rows = [x["prompt"] + c for x, c in zip(labels, completions)]
        batch[f"{prefix}completion_input_ids"] = padded(rows, PAD)
        batch[f"{prefix}completion_attention_mask"] = padded([[1] * len(r) for r in rows], 0)
        batch[f"{prefix}completion_labels"] = padded([[-100] * len(x["prompt"]) + c
                                                      for x, c in zip(labels, completions)], -100)
    return batch


def dpo(loss_type, beta, smoothing, averages=False):
    """averages: the log-probabilities that the trainer computes for ipo, means over tokens, in the loss loss_type."""
    arguments = types.SimpleNamespace(rpo_alpha=None, ld_alpha=None, use_liger_loss=False, use_liger_kernel=False)
    trainer = bare(trl.DPOTrainer, args=arguments, loss_type=["ipo" if averages else loss_type], loss_weights=None, beta=beta,
                   label_smoothing=smoothing, use_logits_to_keep=False, padding_free=False, reference_free=False,
                   f_divergence_type="reverse_kl", f_divergence_params=None, precompute_ref_log_probs=False,
                   ref_model=reference, model=model, truncation_mode="keep_end")
    if averages:
        trainer.dpo_loss = lambda a, b, c, d, _, output: trl.DPOTrainer.dpo_loss(trainer, a, b, c, d, loss_type, output)
    loss, metrics = trainer.get_batch_loss_metrics(model, dpo_batch())
    return loss, metrics


def simpo(beta, gamma, smoothing):
    trainer = bare(trl.CPOTrainer, loss_type="simpo", beta=beta, simpo_gamma=gamma, cpo_alpha=0.0, alpha=0.0,
                   label_smoothing=smoothing)
    return trainer.get_batch_loss_metrics(model, whole_batch())


def orpo(beta):
    return bare(trl.ORPOTrainer, beta=beta).get_batch_loss_metrics(model, whole_batch())


def kto(beta, desirable, undesirable):
    trainer = bare(trl.KTOTrainer, loss_type="kto", beta=beta, desirable_weight=desirable,
                   undesirable_weight=undesirable, calculate_KL=True, ref_model=reference, model=model,
                   args=types.SimpleNamespace(use_liger_loss=False))
    return trainer.get_batch_loss_metrics(model, kto_batch())


@torch.no_grad()
def logp(network, prompt, answer):
    logits = network(torch.tensor([prompt + answer])).logits[0].double()
    rows = torch.log_softmax(logits, -1)[len(prompt) - 1:-1]
    return float(rows.gather(1, torch.tensor(answer)[:, None]).sum())


CASES = {
    "dpo": ({"loss": "dpo", "beta": 0.1}, lambda: dpo("sigmoid", 0.1, 0.0)),
    "dpo_smoothed": ({"loss": "dpo", "beta": 0.3, "label_smoothing": 0.2}, lambda: dpo("sigmoid", 0.3, 0.2)),
    "dpo_averaged": ({"loss": "dpo", "beta": 2.0, "length_normalization": True},
                     lambda: dpo("sigmoid", 2.0, 0.0, averages=True)),
    "ipo": ({"loss": "ipo", "beta": 0.2}, lambda: dpo("ipo", 0.2, 0.0)),
    "simpo": ({"loss": "simpo", "beta": 2.0, "simpo_margin": 0.5}, lambda: simpo(2.0, 0.5, 0.0)),
    "simpo_smoothed": ({"loss": "simpo", "beta": 2.0, "simpo_margin": 1.0, "label_smoothing": 0.1},
                       lambda: simpo(2.0, 1.0, 0.1)),
    "orpo": ({"loss": "orpo", "beta": 0.1}, lambda: orpo(0.1)),
    "kto": ({"loss": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.5},
            lambda: kto(0.1, 1.0, 1.5)),
}

tensors, cases = {}, {}
for name, (options, compute) in CASES.items():
    model.zero_grad()
    loss, metrics = compute()
    loss.backward()
    for parameter in GRADIENTS:
        tensors[f"{name}.{parameter}"] = model.get_parameter(parameter).grad.clone()
    cases[name] = {"options": options, "loss": float(loss),
                   "metrics": {k: float(v) for k, v in metrics.items() if "logits" not in k}}
    print(name, float(loss))

kl_answers = [labels[-1]["completion"]] + [x["completion"] for x in labels[:-1]]
figures = {
    "pairs": [{**p, "reference": [logp(reference, p["prompt"], p["chosen"]), logp(reference, p["prompt"], p["rejected"])]}
              for p in pairs],
    "labels": [{**x, "reference": [logp(reference, x["prompt"], x["completion"]), logp(reference, x["prompt"], c)]}
               for x, c in zip(labels, kl_answers)],
    "cases": cases,
}

# The curve. Preferred answers draw from the lower half of the vocabulary.
torch.manual_seed(20272)
half = vocabulary // 2
curve_pairs = [{"prompt": ids(3, vocabulary, 4 + i % 5), "chosen": ids(3, half, 4 + i % 3),
                "rejected": ids(half, vocabulary, 4 + i % 4)} for i in range(48)]


class Curve(trl.DPOTrainer):
    def _prepare_dataset(self, dataset, *_):
        return dataset

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


names = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"<{i}>": i for i in range(vocabulary)}, unk_token="<0>"))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=names, pad_token="<0>", eos_token="<1>")
STEPS, BATCH, RATE = 50, 8, 1e-3
start = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")
trainer = Curve(
    model=start, processing_class=tokenizer,
    args=trl.DPOConfig(output_dir="/tmp/preference_curve", max_steps=STEPS, per_device_train_batch_size=BATCH,
                       learning_rate=RATE, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0,
                       adam_beta2=0.95, beta=0.1, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
                       seed=1, gradient_checkpointing=False, bf16=False, disable_dropout=True,
                       remove_unused_columns=False),
    train_dataset=datasets.Dataset.from_list([{f"{k}_input_ids": v for k, v in p.items()} for p in curve_pairs]))
trainer.train()
logged = [entry for entry in trainer.state.log_history if "loss" in entry]
figures["curve"] = {"pairs": curve_pairs, "steps": STEPS, "batch": BATCH, "lr": RATE, "beta": 0.1,
                    "losses": [entry["loss"] for entry in logged],
                    "accuracies": [entry["rewards/accuracies"] for entry in logged],
                    "margins": [entry["rewards/margins"] for entry in logged]}
figures["versions"] = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
(HERE / "preferences.json").write_text(json.dumps(figures) + "\n")
save_file(tensors, HERE / "preferences.safetensors", metadata=figures["versions"])
print(figures["curve"]["losses"][:3], figures["curve"]["losses"][-3:], figures["curve"]["accuracies"][-3:])
