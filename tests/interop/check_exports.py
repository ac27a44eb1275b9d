#!/usr/bin/env python3
"""Exports of the program, read by the programs that they are made for.

Usage: check_exports.py QUENCH FOLDER [NAME ...]   where FOLDER holds a model folder "model" and receives everything else.
Prints a line for each export and exits 1 when one differs. With names, only those schemes.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
import torch
from one_layer import write_layer
from safetensors.numpy import load_file, save_file

QUENCH, FOLDER, NAMES = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
MODEL = FOLDER / "model"
MODELS = pathlib.Path("tests/golden/models")

# Schemes whose weights the package compressed-tensors decompresses; the bound is for the logits of Transformers beside
# ours, where it computes in f32. Asymmetric packed integers are an exception: Transformers 5.23 expects their zero
# points unpacked, which the package itself never writes. Schemes that round inputs have a bound above 1e-3: a
# difference of one bit between two norms can move a code by one, and every later layer with it, in Transformers beside
# itself too (own_distance). Their layers, each on the same input, are held to MOST_OF_LAYERS.
COMPRESSED = [
    ("int8_weight_only", 1e-3),
    ("int4_weight_only_g32", 1e-3),
    ("int4_weight_only_g128", 1e-3),
    ("int4_weight_only_g32_asym", None),
    ("int3_weight_only_g64", 1e-3),
    ("float8_weight_only", 1e-3),
    ("float8_weight_only_tensor", 1e-3),
    ("float8_dynamic_block", 1e-2),
    ("mxfp8_weight_only", None),
    ("mxfp6_weight_only", None),
    ("mxfp4_weight_only", None),
    ("nvfp4_weight_only", None),
    ("mxfp8", None),
    ("mxfp6", None),
    ("mxfp4", None),
    ("nvfp4", None),
    ("int8dyn_int8", 1e-2),
    ("int8dyn_int8_row", 1e-2),
    ("int8dyn_int4_g32", 1e-2),
    ("float8dyn_int4_g64", 1e-2),
    ("float8dyn_int4_g128", 1e-2),
    ("float8_dynamic", 1e-2),
    ("float8_dynamic_tensor", 1e-2),
    ("float8_static", 1e-2),
    ("int8static_int8", 1e-2),
]
# Tied heads, biases, norms of heads and norms with an offset, each with these schemes of compressed-tensors.
FAMILIES = [MODELS / name for name in ("llama31_tied", "qwen2", "qwen3")]
FAMILIES += [pathlib.Path("tests/reference/models") / name for name in ("gemma2", "gemma3")]
OF_FAMILIES = [("int8_weight_only", 1e-3), ("int4_weight_only_g32", 1e-3), ("float8_weight_only", 1e-3)]
MOST_OF_LAYERS = 1e-5  # of any row of any layer's output, relative
# Of TorchAO's layout: the bound is for the logits of TorchAO's own products in f32 beside ours; none where its products
# want a GPU.
TORCHAO = [
    ("int8_weight_only", 1e-3),
    ("int4_weight_only_g32", 1e-3),
    ("int4_weight_only_g32_asym", 1e-3),
    ("int3_weight_only_g64", 1e-3),
    ("int8dyn_int4_g32", 1e-2),
    ("int8dyn_int8", 1e-2),
    ("int8dyn_int8_row", 1e-2),
    ("float8_weight_only", 1e-3),
    ("float8_weight_only_tensor", 1e-3),
    ("float8_dynamic", None),
    ("mxfp8", None),
    ("mxfp4", None),
    ("nvfp4_weight_only", None),
]
# With the least signal to noise of up_proj, in dB.
GGUF = {"f16": 60, "bf16": 40, "f32": 60, "q8_0": 40, "q6_k": 33, "q5_k_m": 27, "q5_1": 27, "q5_0": 26, "q4_k_m": 20, "q4_1": 20,
        "q4_0": 18, "iq4_nl": 20, "iq4_xs": 20, "q3_k_m": 14, "iq3_m": 13, "iq3_xxs": 10, "q2_k": 8, "iq2_m": 7, "iq2_xs": 6,
        "tq2_0": 4, "mxfp4_gguf": 14, "int4_weight_only_g32": 15, "int8_weight_only_g32": 40}
WITH_MATRIX = ("iq3_xxs", "iq2_m", "iq2_xs")

failures = 0


def report(name, ok, text):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def own_logits(model, ids):
    save_file({"input_ids": ids}, FOLDER / "ids.safetensors")
    quench("forward", "--model", model, "--input", FOLDER / "ids.safetensors", "--output", FOLDER / "logits.safetensors",
           "--overwrite", "--device", "cpu", "--dtype", "f32")
    return load_file(FOLDER / "logits.safetensors")["logits"]


def distance(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# Schemes whose inputs have a calibrated scale, or blocks that need an importance matrix.
def calibration(scheme):
    if scheme not in ("float8_static", "int8static_int8", "nvfp4", *WITH_MATRIX):
        return []
    return ["--calibration", "README.md", "--calibration-samples", "8", "--calibration-seq-len", "128"]


def nvfp4_values(state, group):
    """What the package's functions make of a weight in f32; its compressor calls them in bf16, which rounds twice."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    rows, pairs = state["weight_packed"].shape
    codes = unpack_fp4_from_uint8(state["weight_packed"], rows, 2 * pairs, dtype=torch.float32)
    return dequantize(x_q=codes, scale=state["weight_scale"].float(), args=group.weights,
                      global_scale=state["weight_global_scale"], dtype=torch.float32)


def check_weights(scheme, folder):
    """The package's values of every quantized layer beside ours; returns the largest distance."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file as load_torch

    config = QuantizationConfig.model_validate(json.loads((folder / "config.json").read_text())["quantization_config"])
    group = next(iter(config.config_groups.values()))
    compressor = BaseCompressor.get_value_from_registry(str(getattr(group.format, "value", group.format)))
    quench("export", "--model", folder, "--output", FOLDER / f"{scheme}-values", "--dtype", "f32")
    ours, stored = load_file(FOLDER / f"{scheme}-values" / "model.safetensors"), load_torch(folder / "model.safetensors")
    worst = 0
    for name in {key.rsplit(".", 1)[0] for key in stored if key.endswith(".weight_scale")}:
        state = {key.rsplit(".", 1)[1]: value for key, value in stored.items() if key.rsplit(".", 1)[0] == name}
        two_level = "weight_global_scale" in state
        theirs = nvfp4_values(state, group) if two_level else compressor.decompress(state, group)["weight"]
        worst = max(worst, distance(theirs.float().numpy(), ours[f"{name}.weight"]))
    return worst


def distance_of_layers(folder, model, ids):
    """The largest distance of a row of a layer's output from ours, each layer given the input that it has in `model`:
    all tokens at once, and the first of them, which takes another way through our program."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        stored, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}
    quantization = json.loads((folder / "config.json").read_text())["quantization_config"]
    products, hooks = {}, []
    for name, module in model.named_modules():
        if f"{name}.weight_scale" in stored or f"{name}._weight_scale" in stored:
            def record(_, inputs, output, name=name):
                products[name] = [t.reshape(-1, t.shape[-1]) for t in (inputs[0], output)]
            hooks.append(module.register_forward_hook(record))
    with torch.no_grad():
        model(torch.from_numpy(ids))
    for hook in hooks:
        hook.remove()
    assert products
    worst = 0
    for name, (x, y) in products.items():
        write_layer(FOLDER / "layer", quantization, stored, metadata, name, x)
        for tokens in (len(x), 4):
            ours = torch.from_numpy(own_logits(FOLDER / "layer", np.arange(tokens)[None]))[0]
            worst = max(worst, ((ours - y[:tokens]).norm(dim=1) / y[:tokens].norm(dim=1)).max().item())
    return worst


def own_distance(model, ids, logits):
    """How far the logits of Transformers go where embeddings change in their last bit, the largest of five times."""
    embeddings = model.get_input_embeddings().weight
    stored, worst = embeddings.data.clone(), 0
    for seed in range(5):
        torch.manual_seed(seed)
        embeddings.data = stored * (1 + (torch.rand_like(stored) - 0.5) * 2**-22)
        with torch.no_grad():
            worst = max(worst, distance(model(torch.from_numpy(ids)).logits.numpy(), logits))
    return worst


def check_layers(folder, model, ids, logits):
    layers, own = distance_of_layers(folder, model, ids), own_distance(model, ids, logits)
    return layers < MOST_OF_LAYERS, (
        f", which move by up to {own:.1e} themselves when embeddings change in the last bit; layers on the same inputs "
        f"by {layers:.1e} (at most {MOST_OF_LAYERS:.0e})")


def check_compressed(scheme, most, ids, source=MODEL):
    from transformers import AutoModelForCausalLM

    name = scheme if source == MODEL else f"{source.name} {scheme}"
    folder = FOLDER / name.replace(" ", "-")
    quench("quantize", "--model", source, "--scheme", scheme, "--output", folder, "--dtype", "f32", *calibration(scheme))
    apart = check_weights(scheme, folder)
    ok, text = apart < 1e-6, f"weights differ by {apart:.1e}"
    if most is not None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            theirs = model(torch.from_numpy(ids)).logits.numpy()
        logits = distance(theirs, own_logits(folder, ids))
        ok, text = ok and logits < most, text + f", logits of Transformers by {logits:.1e} (at most {most:.0e})"
        if most > 1e-3:
            layers, more = check_layers(folder, model, ids, theirs)
            ok, text = ok and layers, text + more
    report(name, ok, text)


def check_torchao(scheme, most, ids):
    """TorchAO's own loader on the folder: values of every weight beside ours, and the logits of a model with them."""
    from safetensors import safe_open
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict
    from transformers import AutoConfig, AutoModelForCausalLM

    folder, plain = FOLDER / f"torchao-{scheme}", FOLDER / f"torchao-{scheme}-values"
    quench("quantize", "--model", MODEL, "--scheme", scheme, "--format", "torchao", "--output", folder, "--dtype", "f32")
    quench("quantize", "--model", MODEL, "--scheme", scheme, "--output", FOLDER / f"torchao-{scheme}-ours", "--dtype", "f32")
    quench("export", "--model", FOLDER / f"torchao-{scheme}-ours", "--output", plain, "--dtype", "f32")
    ours = load_file(plain / "model.safetensors")
    with safe_open(folder / "model.safetensors", "pt") as file:
        stored, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()
    weights, left = unflatten_tensor_state_dict(stored, metadata)
    assert not left, f"parts that belong to no weight: {sorted(left)}"
    worst, count = 0, 0
    for name, value in weights.items():
        if type(value) is not torch.Tensor:
            count += 1
            worst = max(worst, distance(value.dequantize().float().numpy(), ours[name]))
    ok, text = count > 0 and worst < (2e-3 if scheme.startswith("nv") else 1e-6), f"{count} weights differ by {worst:.1e}"
    if most is not None:
        config = AutoConfig.from_pretrained(MODEL)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, value in weights.items():
            module, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(module), leaf, torch.nn.Parameter(value, requires_grad=False))
        model.tie_weights()
        with torch.no_grad():
            theirs = model.eval()(torch.from_numpy(ids)).logits.numpy()
        logits = distance(theirs, own_logits(folder, ids))
        ok, text = ok and logits < most, text + f", logits by {logits:.1e} (at most {most:.0e})"
        if most > 1e-3:
            layers, more = check_layers(folder, model, ids, theirs)
            ok, text = ok and layers, text + more
    # What Transformers makes of the config.
    from torchao.core.config import config_from_dict

    written = json.loads((folder / "config.json").read_text())["quantization_config"]
    kind = type(config_from_dict(written["quant_type"]["default"])).__name__
    report(f"torchao {scheme}", ok and written["quant_method"] == "torchao", f"{kind}: {text}")


def check_gguf(name):
    import gguf
    from gguf.quants import dequantize, quantize

    folder = FOLDER / f"gguf-{name}"
    dense = name in ("f16", "bf16", "f32")
    quench("export", "--model", MODEL, "--format", "gguf", "--output", folder,
           *(["--dtype", name] if dense else ["--scheme", name, "--dtype", "f32", *calibration(name)]))
    reader = gguf.GGUFReader(folder / "model.gguf")
    config = json.loads((MODEL / "config.json").read_text())
    source = load_file(MODEL / "model.safetensors") if (MODEL / "model.safetensors").exists() else {}
    worst, equal = 1e9, True
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if not np.isfinite(values).all():
            return report(f"gguf {name}", False, f"{tensor.name} is not finite")
        if tensor.name.endswith("ffn_up.weight"):
            layer = tensor.name.split(".")[1]
            original = source[f"model.layers.{layer}.mlp.up_proj.weight"].astype(np.float32)
            noise = np.linalg.norm(values.reshape(original.shape) - original)
            if noise > 0:
                worst = min(worst, 20 * np.log10(np.linalg.norm(original) / noise))
            if name in ("q8_0", "q4_0"):
                reference = quantize(original, tensor.tensor_type)
                equal = equal and (reference.reshape(-1) == tensor.data.reshape(-1)).all()
    heads = reader.fields["llama.attention.head_count"].contents()
    report(f"gguf {name}", worst > GGUF[name] and equal and heads == config["num_attention_heads"],
           f"{len(reader.tensors)} tensors, {worst:.1f} dB" +
           (", blocks are the package's own" if name in ("q8_0", "q4_0") and equal else ""))


def main():
    ids = (np.arange(64, dtype=np.int64).reshape(2, 32) * 7) % 250
    for scheme, most in COMPRESSED:
        if not NAMES or scheme in NAMES:
            try:
                check_compressed(scheme, most, ids)
            except Exception as error:  # one that cannot be loaded must not hide the others
                report(scheme, False, f"{type(error).__name__}: {error}")
    for source in FAMILIES:
        for scheme, most in OF_FAMILIES:
            if not NAMES or source.name in NAMES:
                try:
                    check_compressed(scheme, most, ids % 96, source)
                except Exception as error:
                    report(f"{source.name} {scheme}", False, f"{type(error).__name__}: {error}")
    for scheme, most in TORCHAO:
        if not NAMES or f"torchao-{scheme}" in NAMES:
            try:
                check_torchao(scheme, most, ids)
            except Exception as error:
                report(f"torchao {scheme}", False, f"{type(error).__name__}: {error}")
    for name in GGUF:
        if not NAMES or f"gguf-{name}" in NAMES:
            try:
                check_gguf(name)
            except Exception as error:
                report(f"gguf {name}", False, f"{type(error).__name__}: {error}")
    print(f"{failures} failures")
    sys.exit(failures > 0)


main()
