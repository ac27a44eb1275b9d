#!/usr/bin/env python3
"""Steps an hour of GRPO by quench train next to TRL's GRPOTrainer with Transformers' generation, on the same device.

  bench/grpo_rates.py --model SmolLM2-135M-Instruct --wheels wheels --json rates.json
  bench/grpo_rates.py --model tiny --device cpu --steps 4 --prompts 2 --generations 4 --tokens 16 --length 128

Both train all weights on sums (bench/arithmetic.py) with --prompts x --generations completions of at most --tokens tokens a
step, sampled at temperature 1, AdamW, no divergence from a reference, no recomputation. A rate is that of the median step of
the last half, sampling, rewards and update together. Quench trains in bf16 with f32 master weights; TRL with weights of each
of --peer-dtypes: bfloat16 alone, or float32 under autocast. --modes continuous: by Transformers' continuous batching.

--wheels is a folder of wheels that the machine lacks (pip download --no-deps trl datasets dill multiprocess); they are
installed into the work folder.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

from arithmetic import sums, write_records
from gpu_common import (BENCH, BenchError, add_program_options, json_lines, median_of_last_half, quench_train, run_program,
                        step_times)

HOUR = 3600e3  # ms


def ours(args, records, folder):
    config = dict(
        model=dict(path=str(pathlib.Path(args.model).resolve())),
        data=dict(train=[str(records)], seq_len=args.length),
        training=dict(steps=args.steps, micro_batch_size=args.micro_batch, global_batch_size=args.prompts),
        optimizer=dict(lr=args.lr, weight_decay=0.0), lr_schedule=dict(name="constant"),
        grpo=dict(num_generations=args.generations, max_completion_length=args.tokens, rewards="numeric_match", log_completions=0),
        checkpoint=dict(enable=False), metrics=dict(log_every=1, tensorboard=False))
    metrics, _ = quench_train(args.quench, config, folder, args.extra, args.device, args.timeout)
    if len(metrics) < args.steps:
        raise BenchError(f"{len(metrics)} of {args.steps} steps are in metrics.jsonl")
    lengths = [record["objective"]["completions/mean_length"] for record in metrics]
    return dict(step_ms=median_of_last_half(step_times(metrics)), mean_length=sum(lengths) / len(lengths),
                peak_bytes=max(record["memory_bytes"] or 0 for record in metrics))


def peer_environment(args, folder):
    environment = dict(os.environ)
    if args.wheels:
        site = folder / "site"
        wheels = sorted(pathlib.Path(args.wheels).glob("*.whl"))
        if not wheels:
            raise BenchError(f"{args.wheels} holds no wheels")
        if not site.exists():
            run_program([args.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir",
                         "--target", site, *wheels], args.timeout, folder / "pip.log")
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(site) + (f":{known}" if known else "")
    return environment


def peer(args, records, folder, dtype, mode):
    folder.mkdir(parents=True, exist_ok=True)
    command = [args.python, BENCH / "peer" / "trl_grpo.py", "--model", args.model, "--records", records, "--output", folder / "run",
               "--steps", args.steps, "--prompts", args.prompts, "--generations", args.generations, "--tokens", args.tokens,
               "--lr", args.lr, "--dtype", dtype, "--device", args.device, *(["--continuous"] if mode == "continuous" else [])]
    out = run_program(command, args.timeout, folder / "peer.log", peer_environment(args, folder.parent))
    return json_lines(out)[-1]["summary"]


def measure(results, name, call):
    try:
        results[name] = call()
    except BenchError as error:
        results[name] = dict(error=str(error))
        print(f"{name:<28}{error}", flush=True)
        return
    row, first = results[name], results["Quench"]
    ratio = f"   Quench: {row['step_ms'] / first['step_ms']:.2f}x" if name != "Quench" and "step_ms" in first else ""
    print(f"{name:<28}{HOUR / row['step_ms']:>9,.0f} steps/h {row['step_ms']:>10.1f} ms  mean length {row['mean_length']:.1f}  "
          f"{row['peak_bytes'] / 2**30:.2f} GiB{ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--model", required=True, help="Hugging Face folder of a chat model")
    parser.add_argument("--wheels", help="folder of wheels for the peer")
    parser.add_argument("--peer-dtypes", default="bfloat16,float32", help="of TRL's weights")
    parser.add_argument("--modes", default="generate", help="of TRL's sampling: generate, continuous")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=16, help="of a step")
    parser.add_argument("--generations", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--tokens", type=int, default=128, help="largest length of a completion")
    parser.add_argument("--length", type=int, default=512, help="tokens of a row of Quench, which holds several completions")
    parser.add_argument("--micro-batch", type=int, default=16, help="rows of a pass of Quench")
    parser.add_argument("--lr", type=float, default=1e-6)
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    args.micro_batch = next(n for n in range(min(args.micro_batch, args.prompts), 0, -1) if args.prompts % n == 0)
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(args.work or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        records = work / "train.jsonl"
        write_records(records, sums(20, 100)[0])
        measure(results, "Quench", lambda: ours(args, records, work / "quench"))
        for mode in args.modes.split(","):
            for dtype in args.peer_dtypes.split(","):
                name = f"TRL {dtype}" + ("" if mode == "generate" else f" {mode}")
                measure(results, name, lambda: peer(args, records, work / f"trl-{mode}-{dtype}", dtype, mode))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    if any("error" in row for row in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
