#!/usr/bin/env python3
"""Folders that llm-compressor writes, read by the program: logits beside those of Transformers with the values and the rounded
inputs that the package compressed-tensors gives, in f32; then eval, generation, LoRA and requantization.

Usage: check_llmcompressor.py QUENCH FOLDER [SCHEME ...]   where FOLDER receives everything. Needs llmcompressor
Prints a line for each folder and exits 1 when one differs. The first comparison is without rounded inputs: with them a difference
in the last bit moves a code by one, and every later layer with it.
"""

import json
import os
import pathlib
import shutil
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationConfig, QuantizationStatus
from compressed_tensors.quantization.lifecycle.forward import dequantize, forward_quantize
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from quantized_use import Program, random_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

QUENCH, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MOST, MOST_ROUNDED = 1e-3, 1e-2  # distance of logits, relative; with rounded inputs
MOST_REQUANTIZED = {"NVFP4": 0.3, "MXFP4": 0.3}  # 8-bit weights, but inputs of four bits no more
VOCABULARY = 320
SCHEMES = sys.argv[3:] or ["FP8_DYNAMIC", "FP8", "FP8_BLOCK", "NVFP4A16", "NVFP4", "MXFP4A16", "MXFP4", "MXFP8", "W4A16",
                           "W4A16_ASYM", "W8A16", "W8A8", "GPTQ W4A16"]
IDS = np.random.default_rng(4).integers(4, VOCABULARY, (2, 40))


def write(scheme, base, folder):
    generator = torch.Generator().manual_seed(3)
    data = Dataset.from_list([{"input_ids": torch.randint(4, VOCABULARY, (64,), generator=generator).tolist(),
                               "attention_mask": [1] * 64} for _ in range(16)])
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    modifier = GPTQModifier if scheme.startswith("GPTQ ") else QuantizationModifier
    recipe = modifier(targets="Linear", scheme=scheme.removeprefix("GPTQ "), ignore=["lm_head"])
    oneshot(model=model, recipe=recipe, dataset=data, max_seq_length=64, num_calibration_samples=16)
    model.save_pretrained(folder, save_compressed=True)
    for file in base.glob("tokenizer*"):
        shutil.copy(file, folder)


def values_of(folder, group):
    """The package's values of quantized layers, in f32: scales widened first, as its products are rounded to their dtype."""
    stored = load_file(folder / "model.safetensors")
    compressor = BaseCompressor.get_value_from_registry(str(getattr(group.format, "value", group.format)))
    values = {key: tensor.float() for key, tensor in stored.items() if key.endswith("norm.weight") or "embed" in key}
    for name in {key.rsplit(".", 1)[0] for key in stored}:
        state = {key.rsplit(".", 1)[1]: tensor for key, tensor in stored.items() if key.rsplit(".", 1)[0] == name}
        if "weight_scale" not in state:
            values[f"{name}.weight"] = state["weight"].float()
        elif "weight_global_scale" in state:
            rows, pairs = state["weight_packed"].shape
            codes = unpack_fp4_from_uint8(state["weight_packed"], rows, 2 * pairs, dtype=torch.float32)
            values[f"{name}.weight"] = dequantize(x_q=codes, scale=state["weight_scale"].float(), args=group.weights,
                                                  global_scale=state["weight_global_scale"], dtype=torch.float32)
        else:
            if state["weight_scale"].dtype in (torch.bfloat16, torch.float16):
                state["weight_scale"] = state["weight_scale"].float()
            values[f"{name}.weight"] = compressor.decompress(state, group)["weight"].float()
    return values


def round_inputs(model, folder, group):
    """Quantized layers of a dense model round their inputs by the package's functions, in f32."""
    stored = load_file(folder / "model.safetensors")
    for name, module in model.named_modules():
        if f"{name}.weight_scale" not in stored:
            continue
        module.quantization_status = QuantizationStatus.CALIBRATION
        for part in ("input_scale", "input_global_scale"):
            if f"{name}.{part}" in stored:
                setattr(module, part, stored[f"{name}.{part}"].float())
        module.register_forward_pre_hook(
            lambda layer, inputs: forward_quantize(layer, inputs[0], "input", group.input_activations))


def logits_of(model):
    with torch.no_grad():
        return model.eval()(torch.from_numpy(IDS)).logits.float().numpy()


def distance(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def without_inputs(folder, copy):
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    config = json.loads((copy / "config.json").read_text())
    for group in config["quantization_config"]["config_groups"].values():
        group["input_activations"] = None
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def check(scheme, base, program):
    folder = FOLDER / scheme.replace(" ", "_")
    write(scheme, base, folder)
    quantization = QuantizationConfig.model_validate(json.loads((folder / "config.json").read_text())["quantization_config"])
    group = next(iter(quantization.config_groups.values()))
    dense = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    missing = dense.load_state_dict(values_of(folder, group), strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys, missing
    rounded = group.input_activations is not None
    read = without_inputs(folder, FOLDER / "plain") if rounded else folder
    apart = distance(program.logits(read, IDS), logits_of(dense))
    good, text = apart <= MOST, f"logits {apart:.1e}"
    if rounded:
        round_inputs(dense, folder, group)
        apart = distance(program.logits(folder, IDS), logits_of(dense))
        text += f", with rounded inputs {apart:.1e}"
        good = good and apart <= MOST_ROUNDED
        shutil.rmtree(read)
    try:
        return good, f"{text}; {program.use(folder, VOCABULARY, MOST_REQUANTIZED.get(scheme, 0.05))}"
    except (RuntimeError, AssertionError) as error:
        return False, f"{text}; {error}"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.chdir(FOLDER)  # its log
    random_model(FOLDER / "base", VOCABULARY, 128, 256, 4)
    program, failures = Program(QUENCH, FOLDER), 0
    for scheme in SCHEMES:
        try:
            good, text = check(scheme, FOLDER / "base", program)
        except Exception as error:  # one that cannot be read must not hide the others
            good, text = False, f"{type(error).__name__}: {error}"
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} llm-compressor {scheme}: {text}", flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
