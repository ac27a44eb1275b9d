#!/usr/bin/env python3
"""Models with experts, exported by the program and read by Transformers: the same logits as of the folder they came from.

Usage: check_experts.py QUENCH FOLDER MODEL...   where each MODEL is a folder of tests/golden/models or tests/reference/models
(with reference.safetensors) and FOLDER receives the exports. Prints a line for each and exits 1 when one differs.
"""

import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-5  # relative, of all logits


def main():
    program, folder, models = sys.argv[1], pathlib.Path(sys.argv[2]), [pathlib.Path(name) for name in sys.argv[3:]]
    failed = False
    for source in models:
        exported = folder / f"{source.name}-exported"
        done = subprocess.run([program, "export", "--checkpoint", source, "--format", "hf", "--dtype", "f32", "--output",
                               exported], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"FAIL {source.name}: {done.stderr.strip()}")
            failed = True
            continue
        reference = load_file(source / "reference.safetensors")
        model, loading = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32, output_loading_info=True)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            logits = model(input_ids=reference["input_ids"]).logits
        error = float((logits - reference["logits"]).norm() / reference["logits"].norm())
        lost = {kind: sorted(names) for kind, names in loading.items() if names}
        ok = error < TOLERANCE and not lost
        failed |= not ok
        print(f"{'ok  ' if ok else 'FAIL'} {source.name}: logits differ by {error:.2g}{f', {lost}' if lost else ''}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
