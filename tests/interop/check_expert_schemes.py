#!/usr/bin/env python3
"""Quantized experts of every family in Transformers: what `quench quantize --reader transformers` writes computes as its
dequantized weights do, and what it refuses does not.

Usage: check_expert_schemes.py QUENCH FOLDER [FAMILY ...]   makes small random models in FOLDER. Prints a line for each family
and scheme of compressed-tensors, and exits 1 when the program's verdict is not the one seen. Needs transformers,
compressed-tensors and torch.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

QUENCH, FOLDER, CHOSEN = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
SIZES = {"vocab_size": 272, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.1, "bos_token_id": 256,
         "eos_token_id": 257, "pad_token_id": 258}
FAMILIES = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
                  "shared_expert_intermediate_size": 128},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "head_dim": 32},
    "deepseek_v3": {"num_key_value_heads": 4, "first_k_dense_replace": 1, "kv_lora_rank": 128, "q_lora_rank": 128,
                    "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32, "n_routed_experts": 4,
                    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 128},
    "llama4_text": {"num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 32, "intermediate_size_mlp": 128,
                    "interleave_moe_layer_step": 1},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 16},
}
# One of each kind that the table tells apart.
SCHEMES = ["int4_weight_only_g32", "int8_weight_only", "int3_weight_only_g32", "int4_weight_only_g32_asym", "int8dyn_int8",
           "int8dyn_int4_g32", "int8dyn_int8_row", "int8static_int8", "float8_weight_only", "float8_weight_only_tensor",
           "float8_dynamic", "float8_dynamic_tensor", "float8_static", "float8_dynamic_block", "float8dyn_int4_g32",
           "mxfp8", "mxfp8_weight_only", "mxfp6", "mxfp6_weight_only", "mxfp4", "mxfp4_weight_only", "nvfp4",
           "nvfp4_weight_only"]
CALIBRATED = ("int8static_int8", "float8_static", "nvfp4")
# Relative distance of logits. Inputs in high precision leave none.
NEAR, NEAR_WITH_INPUTS = 1e-2, 0.75
IDS = torch.tensor([[(37 * i + 11) % 256 for i in range(96)]])


def quench(*arguments):
    return subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True, cwd=FOLDER)


def make(family):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SIZES, **FAMILIES[family]}))
    for name, parameter in model.named_parameters():
        if "norm" not in name:  # experts of some families start from uninitialized memory
            parameter.data.normal_(0, SIZES["initializer_range"])
    model.to(torch.bfloat16).save_pretrained(FOLDER / family)


def load(folder):
    model, loading = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, output_loading_info=True)
    with torch.no_grad():
        logits = model(IDS).logits.float()
    return logits, sorted(loading["missing_keys"])


def drop_inputs(folder):
    """Inputs of the folder in high precision; False if they are already."""
    config = json.loads((folder / "config.json").read_text())
    groups = config["quantization_config"]["config_groups"].values()
    quantized = any(group.get("input_activations") for group in groups)
    for group in groups:
        group["input_activations"] = None
    (folder / "config.json").write_text(json.dumps(config))
    return quantized


def seen(folder, values):
    """Verdict of a folder beside its dequantized values, and the reason. Experts compute with unquantized inputs there:
    a folder with quantized inputs is read twice, without them to compare the weights."""
    try:
        logits, missing = load(folder)
        right = load(values)[0]
        apart = float((logits - right).norm() / right.norm())
        good, text = apart < NEAR, f"logits differ by {apart:.2g}"
        if drop_inputs(folder):
            good = apart < NEAR_WITH_INPUTS
            apart = float((load(folder)[0] - right).norm() / right.norm())
            good, text = good and apart < NEAR, text + f", by {apart:.2g} without quantized inputs"
    except Exception as error:
        return "refused", f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    text += f", {len(missing)} missing keys as {missing[0]}" if missing else ""
    return "runs" if good and not missing else "wrong", text


def check(family, scheme):
    folder, values = FOLDER / f"{family}-{scheme}", FOLDER / f"{family}-{scheme}-values"
    arguments = ["quantize", "--model", FOLDER / family, "--scheme", scheme, "--dtype", "bf16", "--output", folder]
    if scheme in CALIBRATED:
        arguments += ["--calibration", FOLDER / "ids.npy", "--calibration-samples", "4", "--calibration-seq-len", "64"]
    named = quench(*arguments, "--reader", "transformers")
    if named.returncode != 0:
        done = quench(*arguments)
        if done.returncode != 0:
            return True, "not written", done.stderr.strip().splitlines()[-1]
    done = quench("export", "--model", folder, "--format", "hf", "--dtype", "bf16", "--output", values)
    if done.returncode != 0:
        return False, "not read back", done.stderr.strip()
    verdict, reason = seen(folder, values)
    shutil.rmtree(folder), shutil.rmtree(values)
    return (named.returncode == 0) == (verdict == "runs"), verdict, reason


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    import numpy as np
    np.save(FOLDER / "ids.npy", np.array([(29 * i + 7) % 256 for i in range(512)], np.uint16))
    failed = False
    for family in CHOSEN or FAMILIES:
        make(family)
        for scheme in SCHEMES:
            ok, verdict, reason = check(family, scheme)
            failed |= not ok
            print(f"{'ok  ' if ok else 'FAIL'} {family} {scheme}: {verdict}: {reason}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
