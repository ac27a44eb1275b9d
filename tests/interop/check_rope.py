#!/usr/bin/env python3
"""Continued training under RoPE settings of the run: logits of the exported folder in Transformers beside ours, on sequences
longer than the context of the model that the runs begin with; log-probabilities of its GGUF file
in llama.cpp, where llama-perplexity is named.

Usage: check_rope.py QUENCH FOLDER [LLAMA_PERPLEXITY]   where FOLDER holds a model folder "model". Needs transformers.
"""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

QUENCH, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
PERPLEXITY = sys.argv[3] if len(sys.argv) > 3 else None
CONFIG = json.loads((FOLDER / "model/config.json").read_text())
CONTEXT, HEAD = CONFIG["max_position_embeddings"], CONFIG["head_dim"]
PAIRS = HEAD // 2
LENGTH = 2 * CONTEXT
SETTINGS = {
    "yarn": {"rope_type": "yarn", "factor": 4.0},
    "yarn, attention factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3},
    "yarn, other betas": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0 + i / PAIRS for i in range(PAIRS)],
                 "long_factor": [1.0 + 5.0 * i / PAIRS for i in range(PAIRS)]},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
}
failures = 0


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def report(good, text):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)


def logits_in_transformers(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model(input_ids=torch.tensor(ids)).logits.numpy()


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def in_llama(file, text):
    """Tokens of a window, and log-probabilities after its second half, of llama-perplexity's file of logits."""
    base = FOLDER / "logits.bin"
    subprocess.run([PERPLEXITY, "-m", file, "-f", text, "-c", str(LENGTH), "-b", str(LENGTH), "--chunks", "1", "-ctk", "f32", "-ctv",
                    "f32", "-fa", "off", "--no-repack", "-t", "1", "--kl-divergence-base", base], check=True, capture_output=True)
    data = base.read_bytes()
    window, vocabulary, windows = struct.unpack("<3i", data[8:20])
    tokens = np.frombuffer(data, np.int32, windows * window, 20)[:window]
    width, rows = 2 * ((vocabulary + 1) // 2) + 4, window - 1 - window // 2
    stored = np.frombuffer(data, np.uint16, rows * width, 20 + 4 * windows * window).reshape(rows, width)
    scales = np.ascontiguousarray(stored[:, :4]).view(np.float32)
    return tokens, scales[:, :1] * stored[:, 4:4 + vocabulary].astype(np.float32) + scales[:, 1:]


def forward(model, ids):
    save_file({"input_ids": ids.reshape(1, -1).astype(np.int64)}, FOLDER / "rope-ids.safetensors")
    quench("forward", "--model", model, "--input", FOLDER / "rope-ids.safetensors", "--output", FOLDER / "rope-logits.safetensors",
           "--overwrite", "--device", "cpu", "--dtype", "f32")
    return load_file(FOLDER / "rope-logits.safetensors")["logits"].reshape(ids.size, -1).astype(np.float64)


def unscaled(folder, ids):
    """Logits of the same weights without RoPE scaling."""
    plain = folder.parent / "unscaled"
    shutil.rmtree(plain, ignore_errors=True)
    shutil.copytree(folder, plain)
    config = json.loads((plain / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    config.pop("rope_scaling")
    (plain / "config.json").write_text(json.dumps(config))
    return forward(plain, ids)


text = FOLDER / "long.txt"
text.write_text(pathlib.Path("docs/guide/export.md").read_text())
ids = np.random.default_rng(3).integers(3, CONFIG["vocab_size"], (1, LENGTH)).astype(np.int64)
for name, scaling in SETTINGS.items():
    folder = FOLDER / ("rope-" + re.sub("[^a-z0-9]+", "-", name))
    config = {"model": {"path": str(FOLDER / "model"), "rope_scaling": scaling},
              "data": {"train": [str(text)], "seq_len": LENGTH},
              "training": {"steps": 4, "dtype": "f32", "micro_batch_size": 1}, "optimizer": {"lr": 1e-4},
              "checkpoint": {"enable": False},
              "metrics": {"tensorboard": False, "progress": "off"},
              "run": {"folder": str(folder / "run")},
              "export": {"format": "hf", "dtype": "f32", "folder": str(folder / "hf")}}
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(config))
    quench("train", folder / "run.json", "--device", "cpu")
    ours = forward(folder / "hf", ids)
    theirs = logits_in_transformers(folder / "hf", ids)[0]
    apart = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    without = float(np.linalg.norm(unscaled(folder / "hf", ids) - theirs) / np.linalg.norm(theirs))
    report(apart < 2e-5 < without / 10, f"{name}: logits of {LENGTH} tokens differ by {apart:.1e} from Transformers', without the "
           f"settings by {without:.1e}")
    if PERPLEXITY is None or name == "dynamic":
        continue
    quench("export", "--model", folder / "hf", "--format", "gguf", "--dtype", "f32", "--output", folder / "gguf", "--overwrite")
    tokens, other = in_llama(folder / "gguf/model.gguf", text)
    own = log_softmax(forward(folder / "gguf/model.gguf", tokens)[LENGTH // 2:-1])
    apart = float(np.abs(own - other)[other > other.max(-1, keepdims=True) - 12].max())
    report(apart < 2e-3, f"{name}: log-probabilities of its GGUF file differ by {apart:.1e} at most from llama.cpp's")
print(f"{failures} failures")
sys.exit(failures > 0)
