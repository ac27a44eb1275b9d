#!/usr/bin/env python3
"""GGUF exports beside llama.cpp: ids of a text, perplexity and logits of the same tokens, by type and by rescaling of
positions.

Usage: check_llama.py QUENCH FOLDER   where FOLDER holds a model folder "model". Needs llama-cpp-python and safetensors.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from llama_cpp import Llama, llama_cpp
from safetensors.numpy import load_file, save_file

QUENCH, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
NAMES = ["f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "iq4_nl", "iq4_xs", "q3_k_m", "iq3_m", "iq3_xxs", "q2_k",
         "iq2_m", "iq2_xs", "mxfp4_gguf", "int4_weight_only_g32"]
WITH_MATRIX = ("iq3_xxs", "iq2_m", "iq2_xs")
CALIBRATION = ["--calibration", "README.md", "--calibration-samples", "8", "--calibration-seq-len", "128"]
failures = 0

# Weights stay in the file's layout: products of those that are repacked for AMX crash llama.cpp 0.3.36 in a virtual machine.
default_parameters = llama_cpp.llama_model_default_params


def parameters_without_repacking():
    parameters = default_parameters()
    parameters.use_extra_bufts = False
    return parameters


llama_cpp.llama_model_default_params = parameters_without_repacking


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def perplexity(logits, ids):
    shifted = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    chosen = np.take_along_axis(shifted, ids[1:, None], -1)[:, 0] - np.log(np.exp(shifted).sum(-1))
    return float(np.exp(-chosen.mean()))


# Of a model with an original context of 64 positions, less than the text has.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "yarn": YARN,
    "yarn, attention factor": YARN | {"attention_factor": 1.5},
    "yarn, other betas": YARN | {"beta_fast": 8.0, "beta_slow": 2.0},
    "yarn, bounds not truncated": YARN | {"truncate": False},
}
text = pathlib.Path("README.md").read_text()[:1500]


def ids_of(tokenizer):
    shown = quench("tokenize", "show", "--tokenizer", tokenizer, "--json", text)
    return [token["id"] for token in json.loads(shown)["tokens"]]


def compare(name, source, folder, options):
    """Ids and perplexity of the export, and of its GGUF file without the rest of the folder, in both programs."""
    global failures
    quench("export", "--model", source, "--format", "gguf", "--output", folder, *options)
    alone = FOLDER / "alone"
    shutil.rmtree(alone, ignore_errors=True)
    alone.mkdir()
    shutil.copy(folder / "model.gguf", alone)
    model = Llama(str(folder / "model.gguf"), n_ctx=512, logits_all=True, verbose=False)
    same = model.tokenize(text.encode(), add_bos=True, special=True) == ids_of(folder) == ids_of(alone)
    failures += not same
    print(f"{'ok  ' if same else 'FAIL'} {name}: ids of its tokenizer", flush=True)
    ids = np.array(model.tokenize(text.encode(), add_bos=False), dtype=np.int64)[:300]
    model.eval(ids.tolist())
    theirs = np.array(model.scores[: len(ids)], dtype=np.float32)
    save_file({"input_ids": ids[None]}, FOLDER / "ids.safetensors")
    for kind, read in (("", folder), (" alone", alone)):
        quench("forward", "--model", read, "--input", FOLDER / "ids.safetensors", "--output",
               FOLDER / "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32")
        ours = load_file(FOLDER / "logits.safetensors")["logits"][0]
        apart = float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))
        a, b = perplexity(theirs, ids), perplexity(ours, ids)
        ok = abs(a / b - 1) < 0.005
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}{kind}: perplexity {a:.3f}, ours {b:.3f}; logits differ by {apart:.1e}",
              flush=True)


for name in NAMES:
    dense = name in ("f32", "f16", "bf16")
    compare(name, FOLDER / "model", FOLDER / f"llama-{name}",
            ["--dtype", name] if dense else ["--scheme", name, "--dtype", "f32", *(CALIBRATION if name in WITH_MATRIX else [])])
for name, scaling in SCALINGS.items():
    source = FOLDER / "scaled"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(FOLDER / "model", source)
    config = json.loads((source / "config.json").read_text())
    config["rope_parameters"] = config["rope_scaling"] = scaling | {"rope_theta": 10000.0}
    (source / "config.json").write_text(json.dumps(config))
    compare(name, source, FOLDER / "llama-scaled", ["--dtype", "f32", "--overwrite"])
print(f"{failures} failures")
sys.exit(failures > 0)
