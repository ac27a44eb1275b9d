#!/usr/bin/env python3
"""Word perplexity of a model quantized by calibrations of several numbers and lengths of sequences. Prints a Markdown table.

Usage: calibration_lengths.py QUENCH FOLDER MODEL TEXT CALIBRATION [--device D] [--schemes NAME,...] [--method NAME]
                              [--calibrations NxL,...]
  FOLDER       receives the folders; what lies there is not computed again
  TEXT         text of the perplexity, in windows of 1,024 tokens
  CALIBRATION  another text; N sequences of L tokens from its beginning
"""

import argparse
import json
import pathlib
import subprocess
import sys

parser = argparse.ArgumentParser(usage=__doc__)
for name in ("quench", "folder", "model", "text", "calibration"):
    parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--device", default="cuda")
parser.add_argument("--schemes", default="int4_weight_only_g64,int3_weight_only_g64,int2_weight_only_g64")
parser.add_argument("--method", default="gptq")
parser.add_argument("--calibrations", default="48x512,12x2048,128x512,32x2048,128x2048")
given = parser.parse_args()


def run(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout


def perplexity(scheme, calibration):
    samples, length = calibration.split("x")
    folder = given.folder / f"{scheme}-{given.method}-{calibration}"
    if not (folder / "config.json").exists():
        run(given.quench, "quantize", "--model", given.model, "--scheme", scheme, "--method", given.method, "--calibration",
            given.calibration, "--calibration-samples", samples, "--calibration-seq-len", length, "--device", given.device,
            "--output", folder)
    return json.loads(run(given.quench, "eval", "--model", folder, "--data", given.text, "--seq-len", 1024, "--device",
                          given.device, "--json"))["word_perplexity"]


def main():
    given.folder.mkdir(parents=True, exist_ok=True)
    calibrations = given.calibrations.split(",")
    print(f"| scheme | {' | '.join(calibrations)} |\n|{'---|' * (1 + len(calibrations))}")
    for scheme in given.schemes.split(","):
        print(f"| `{scheme}` | {' | '.join(f'{perplexity(scheme, one):.1f}' for one in calibrations)} |", flush=True)


if __name__ == "__main__":
    main()
