#!/usr/bin/env python3
"""Whole models under float8 recipes on the CPU: `quench forward` beside TorchAO's emulation, logits, loss and gradients.

  TORCHAO_PATH=folder bench/torchao_parity.py --models tests/golden/models/llama tests/golden/models/qwen3

Weights and activations are f32, so that what is left of a difference is the recipe. TorchAO converts every linear layer but
the head whose sizes are multiples of 16, as Quench does. Row and column scales of fused projections are those of their
parts in the forward pass; the recipe with one scale a tensor has another one for a fused matrix, and differs from TorchAO by
rounding noise of its own.

Needs a Python with PyTorch, transformers, safetensors and TorchAO (TORCHAO_PATH names a folder that holds torchao).
"""
import argparse
import dataclasses
import os
import pathlib
import sys
import tempfile

from gpu_common import BENCH, program_environment, run_program

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


def torchao_model(folder, recipe):
    import torch
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    wanted = lambda module, name: "lm_head" not in name and module.in_features % 16 == 0 and module.out_features % 16 == 0
    convert_to_float8_training(model, config=dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True),
                               module_filter_fn=wanted)
    return model


def compare(args, folder, recipe, work):
    import torch
    from safetensors.torch import load_file, save_file

    model = torchao_model(folder, recipe)
    ids = torch.randint(0, model.config.vocab_size, (2, args.length), generator=torch.Generator().manual_seed(0))
    result = model(ids, labels=ids)
    result.loss.backward()
    batch, output = work / "batch.safetensors", work / "output.safetensors"
    save_file(dict(input_ids=ids, labels=ids.clone()), batch)
    run_program([args.quench, "forward", "--model", folder, "--input", batch, "--output", output, "--grads", "--dtype", "f32",
                 "--recipe", f"float8_{recipe}", "--device", "cpu"], 600, environment=program_environment(args.quench))
    ours = load_file(output)
    distance = lambda a, b: ((a - b).norm() / b.norm()).item()
    gradients = {name: distance(ours[f"grad.{name}"], p.grad) for name, p in model.named_parameters()
                 if p.grad is not None and f"grad.{name}" in ours}
    worst = max(gradients, key=gradients.get)
    print(f"{pathlib.Path(folder).name:<16}{recipe:<22}{ours['loss'].item():>10.6f}{result.loss.item():>10.6f}"
          f"{distance(ours['logits'], result.logits.detach()):>11.1e}{gradients[worst]:>11.1e}  {worst}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--models", nargs="+", required=True, help="Hugging Face folders")
    parser.add_argument("--length", type=int, default=32)
    args = parser.parse_args()
    if path := os.environ.get("TORCHAO_PATH"):
        sys.path.insert(0, path)
    print(f"{'model':<16}{'recipe':<22}{'loss':>10}{'TorchAO':>10}{'logits':>11}{'gradient':>11}  (relative L2; the worst gradient)")
    with tempfile.TemporaryDirectory() as work:
        for folder in args.models:
            for recipe in RECIPES:
                compare(args, folder, recipe, pathlib.Path(work))


if __name__ == "__main__":
    main()
