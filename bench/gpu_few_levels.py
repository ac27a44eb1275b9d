#!/usr/bin/env python3
"""Weights of two, three and four levels on a real model: the run configs/runs/qad_seq_smollm2-135m.json for each grid and
rate, and a table of the divergence from the teacher (first and last tenth of the steps), the validation loss as trained and
as exported, and the perplexity of the exported folder.

  bench/gpu_few_levels.py --model SmolLM2-135M-Instruct --train train.txt --held-out test.txt --output runs [-- KEYS]

KEYS, such as --training.steps=300, go to every run. Nothing but the standard library is needed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
LEARNED = ["--recipe.learned_scales=true"]
OWN = ["--recipe.learned_scales=false"]
GRIDS = {
    "binary": ["--recipe.weight_grid=binary", *LEARNED],
    "ternary": ["--recipe.weight_grid=ternary", *LEARNED],
    "seq": ["--recipe.weight_grid=seq", *LEARNED],
    "int2": ["--recipe.weight_grid=int", "--recipe.weight_bits=2", *LEARNED],
    "int3": ["--recipe.weight_grid=int", "--recipe.weight_bits=3", *LEARNED],
    "seq_own": ["--recipe.weight_grid=seq", *OWN],
    "int2_own": ["--recipe.weight_grid=int", "--recipe.weight_bits=2", *OWN],
}


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(command, log):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log.write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip().splitlines()[-1:]}, see {log}")
    return done.stdout


def measure(args, grid, rate):
    folder = pathlib.Path(args.output) / f"{grid}-{rate}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    if not (folder / "export").exists():
        run([args.quench, "train", args.config, "--device", args.device, f"--model.path={args.model}", f"--data.train={args.train}",
             f"--data.validation={args.held_out}", f"--run.folder={folder}", f"--optimizer.lr={rate}", *GRIDS[grid],
             *args.keys], log)
    steps = rows_of(folder / "metrics/metrics.jsonl")
    divergence = [step["objective"]["divergence"] for step in steps if "divergence" in step.get("objective", {})]
    tenth = max(1, len(divergence) // 10)
    losses = {row["name"]: row["values"]["loss"] for row in rows_of(folder / "metrics/evaluations.jsonl")}
    evaluated = json.loads(run([args.quench, "eval", "--model", folder / "export", "--data", args.held_out, "--format",
                                "text", "--seq-len", args.seq_len, "--device", args.device, "--json"],
                               folder.with_suffix(".eval.log")))
    exported = next((value for name, value in losses.items() if name.startswith("export")), float("nan"))
    size = sum(file.stat().st_size for file in (folder / "export").glob("*.safetensors")) / 1e6
    return [grid, rate, f"{statistics.mean(divergence[:tenth]):.3f}" if divergence else "",
            f"{statistics.mean(divergence[-tenth:]):.4f}" if divergence else "", f"{losses['validation']:.4f}",
            f"{exported:.4f}", f"{evaluated['token_perplexity']:.2f}", f"{size:.1f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(REPOSITORY / "build/quench"))
    parser.add_argument("--config", default=str(REPOSITORY / "configs/runs/qad_seq_smollm2-135m.json"))
    parser.add_argument("--model", required=True, help="model folder: student and teacher")
    parser.add_argument("--train", required=True, help="text to train on")
    parser.add_argument("--held-out", required=True, help="text to validate on")
    parser.add_argument("--output", required=True, help="folder of the runs; finished ones are kept")
    parser.add_argument("--grids", default=",".join(GRIDS), help=f"of {', '.join(GRIDS)}")
    parser.add_argument("--rates", default="1e-4,3e-4", help="peak learning rates of the weights")
    parser.add_argument("--seq-len", default="512", help="window of the perplexity")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("keys", nargs="*", help="after --: keys of every run")
    args = parser.parse_args()
    unknown = set(args.grids.split(",")) - set(GRIDS)
    if unknown:
        parser.error(f"--grids {', '.join(sorted(unknown))} is unknown; known: {', '.join(GRIDS)}")
    print("| grid | rate | divergence, first steps | last steps | validation loss | as exported | perplexity | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for grid in args.grids.split(","):
        for rate in args.rates.split(","):
            print("| " + " | ".join(measure(args, grid, rate)) + " |", flush=True)


if __name__ == "__main__":
    main()
