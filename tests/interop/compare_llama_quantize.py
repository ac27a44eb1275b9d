#!/usr/bin/env python3
"""GGUF mixes of the program beside those of llama-quantize: one unquantized file, one importance matrix, one evaluator
(llama-perplexity with the logits of the unquantized file). Prints a Markdown table.

Usage: compare_llama_quantize.py QUENCH LLAMA FOLDER MODEL TEXT CALIBRATION [--chunks N] [--matrix-chunks N] [--threads N]
                                 [MIX ...]
  LLAMA        folder with llama-quantize, llama-imatrix, llama-perplexity
  FOLDER       receives all files; what lies there is not computed again
  MODEL        model folder or GGUF file
  TEXT         text of the perplexity; the first N chunks (16) of 512 tokens are used
  CALIBRATION  text of the importance matrix, another one than TEXT; its first N chunks (64) of 512 tokens
  MIX          default: all mixes below
Exits 1 where types of tensors differ or a perplexity exceeds llama-quantize's by more than 0.3%. Needs gguf.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import gguf

BOTH, WITH, WITHOUT = (False, True), (True,), (False,)  # matrix
MIXES = {"q8_0": WITHOUT, "q6_k": BOTH, "q5_k_m": BOTH, "q4_k_m": BOTH, "iq4_xs": BOTH, "q3_k_m": BOTH, "iq3_m": WITH,
         "iq3_xxs": WITH, "q2_k": BOTH, "iq2_m": WITH, "iq2_xs": WITH}
MOST = 1.003  # perplexity over that of llama-quantize's file
CONTEXT = 512

parser = argparse.ArgumentParser(usage=__doc__)
for name in ("quench", "llama", "folder", "model", "text", "calibration"):
    parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--chunks", type=int, default=16)
parser.add_argument("--matrix-chunks", type=int, default=64)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("mixes", nargs="*", default=list(MIXES))
given = parser.parse_intermixed_args()


def run(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout + done.stderr


def made(file, *sources):
    """Whether `file` exists and is newer than its sources."""
    return file.exists() and all(file.stat().st_mtime >= source.stat().st_mtime for source in sources)


def perplexity(model, base, *options):
    # Weights stay in the file's layout: products of those that are repacked for AMX crash in a virtual machine.
    return run(given.llama / "llama-perplexity", "-m", model, "-c", CONTEXT, "-t", given.threads, "--no-repack",
               "--kl-divergence-base", base, *options)


def evaluate(model, base):
    """Perplexity, KL divergence from the unquantized file and share of equal likeliest tokens (%), with their errors."""
    log = model.with_suffix(f".{given.chunks}.txt")
    if not made(log, model, base):
        log.write_text(perplexity(model, base, "--kl-divergence"))
    text = log.read_text()
    return [tuple(map(float, re.search(rf"{re.escape(what)}\s*: +([\d.]+) ± +([\d.]+)", text).groups()))
            for what in ("Mean PPL(Q)", "Mean    KLD", "Same top p")]


def types_of(file):
    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors}


def row(mix, with_matrix, dense, matrix, base):
    name = mix + "-matrix" * with_matrix
    ours, theirs = given.folder / f"{name}.gguf", given.folder / f"{name}-llama.gguf"
    if not made(ours, dense, given.quench):
        run(given.quench, "quantize", "--model", given.model, "--format", "gguf", "--scheme", mix, "--overwrite", "--output",
            ours, *(["--imatrix", matrix] if with_matrix else []))
    if not made(theirs, dense):
        run(given.llama / "llama-quantize", *(["--imatrix", matrix] if with_matrix else []), dense, theirs, mix.upper(),
            given.threads)
    own, other = types_of(ours), types_of(theirs)
    different = [f"{tensor} is {own.get(tensor)}, llama-quantize's {kind}" for tensor, kind in other.items()
                 if own.get(tensor) != kind] + [f"{tensor} is not in llama-quantize's" for tensor in own.keys() - other.keys()]
    a, b = evaluate(ours, base), evaluate(theirs, base)
    good = not different and a[0][0] <= b[0][0] * MOST
    print(f"| {mix.upper()} | {'matrix' if with_matrix else 'none'} | {ours.stat().st_size / 1e6:.2f} / "
          f"{theirs.stat().st_size / 1e6:.2f} | {a[0][0]:.3f} / {b[0][0]:.3f} | {100 * (a[0][0] / b[0][0] - 1):+.2f}% | "
          f"{a[1][0]:.4f} / {b[1][0]:.4f} | {a[2][0]:.1f} / {b[2][0]:.1f} |{'' if good else ' FAIL'}"
          f"{' ' + different[0] if different else ''}", flush=True)
    return good


def main():
    given.folder.mkdir(parents=True, exist_ok=True)
    dense, matrix = given.folder / "f16.gguf", given.folder / "imatrix.gguf"
    base = given.folder / f"f16.{given.chunks}.logits"
    if not made(dense):
        run(given.quench, "export", "--model", given.model, "--format", "gguf", "--dtype", "f16", "--output", dense)
    if not made(matrix, dense):
        run(given.llama / "llama-imatrix", "-m", dense, "-f", given.calibration, "-o", matrix, "-c", CONTEXT, "--chunks",
            given.matrix_chunks, "-t", given.threads, "--no-repack")
    if not made(base, dense):
        base.with_suffix(".txt").write_text(perplexity(dense, base, "-f", given.text, "--chunks", given.chunks))
    score = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", base.with_suffix(".txt").read_text())
    print(f"f16: perplexity {score[1]} ± {score[2]}, {dense.stat().st_size / 1e6:.2f} MB; {given.chunks} chunks of {CONTEXT} "
          f"tokens; matrix of {given.matrix_chunks} chunks. Quench / llama-quantize:\n")
    print("| mix | matrix | MB | perplexity | difference | KL divergence | equal likeliest tokens, % |")
    print("|---|---|---|---|---|---|---|")
    good = [row(mix, with_matrix, dense, matrix, base) for mix in given.mixes
            for with_matrix in MIXES.get(mix, WITH)]
    print(f"\n{good.count(False)} failures")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
