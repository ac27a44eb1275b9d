#!/usr/bin/env python3
"""Full training of Qwen2.5 next to LLM.Q's published table (one H100, sequences of 1,024, 524,288 tokens a step).

  bench/gpu_published.py --rows 0.5b,1.5b --precisions bf16,fp8 --json published.json

The published figures are bars, not measurements of the same call: quote the GPU's name with a ratio. Random tokens and
weights; bf16 weights, gradients and AdamW state unless a row says otherwise.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from gpu_common import (BenchError, Shape, add_program_options, load_run_config, median_of_last_half, quench_train,
                        step_times, write_random_tokens)

TOKENS_PER_STEP, LENGTH = 524288, 1024
GIB = 2.0**30
# size: LLM.Q's tokens/s (benchmarks/H100x1.md) in bf16 and fp8; sequences of a micro-batch, steps, further keys
ROWS = {
    "0.5b": dict(bf16=149_000, fp8=164_000, batch=16, steps=6, keys={}),
    "1.5b": dict(bf16=58_900, fp8=73_000, batch=16, steps=4, keys={}),
    "3b": dict(bf16=30_900, fp8=40_400, batch=16, steps=3, keys={"training.activation_checkpoint": "selective"}),
    "7b": dict(bf16=13_818, fp8=19_148, batch=8, steps=2,
               keys={"training.activation_checkpoint": "selective", "optimizer.offload_ratio": 1}),
    "14b": dict(bf16=6_330, fp8=9_360, batch=4, steps=2,
                keys={"training.activation_checkpoint": "selective", "optimizer.offload_ratio": 1,
                      "optimizer.name": "adamw_4bit"}),
}
RECIPES = {"bf16": [], "fp8": ["--recipe.name=float8_tensorwise"],
           "fp8_head": ["--recipe.name=float8_tensorwise", "--recipe.filter.exclude="],
           "fp8_delayed": ["--recipe.name=float8_tensorwise", "--recipe.filter.exclude=", "--recipe.scaling=delayed"]}


def run(args, size, precision, work):
    row = ROWS[size]
    config = {
        "model": {"preset": f"qwen2.5-{size}"},
        "data": {"format": "npy", "seq_len": LENGTH, "shuffle": False},
        "training": {"steps": row["steps"], "micro_batch_size": row["batch"], "global_batch_size": TOKENS_PER_STEP // LENGTH,
                     "dtype": "bf16", "master_dtype": "none", "grad_dtype": "bf16", "activation_checkpoint": "none"},
        "optimizer": {"lr": 1e-4},
        "lr_schedule": {"name": "constant"},
        "checkpoint": {"enable": False},
        "metrics": {"log_every": 1, "tensorboard": False, "progress": "off"},
    }
    if row["keys"].get("optimizer.name", "adamw") == "adamw":
        config["optimizer"]["state"] = "bf16"
    path = work / "run.json"
    path.write_text(json.dumps(config))
    vocab = Shape(load_run_config(path)).vocab
    tokens = work / f"tokens-{vocab}.npy"
    if not tokens.exists():
        write_random_tokens(tokens, vocab, TOKENS_PER_STEP * max(r["steps"] for r in ROWS.values()) + 1)
    config["data"]["train"] = [str(tokens)]
    overrides = [f"--{key}={value}" for key, value in row["keys"].items()] + RECIPES[precision] + args.extra
    records, _ = quench_train(args.quench, config, work / f"{size}-{precision}", overrides, args.device, args.timeout)
    step = median_of_last_half(step_times(records))
    speed = TOKENS_PER_STEP / step * 1e3
    published = row[precision.partition("_")[0]]
    return dict(size=size, precision=precision, step_ms=step, tokens_per_second=speed, published=published,
                ratio=speed / published, peak_bytes=max(record["memory_bytes"] or 0 for record in records))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--precisions", default="bf16,fp8", help=", ".join(RECIPES))
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    results, failed = [], False
    print(f"{'model':<6}{'precision':<10}{'tok/s':>9}{'published':>11}{'ratio':>8}{'GiB':>7}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(args.work or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for size in args.rows.split(","):
            for precision in args.precisions.split(","):
                try:
                    one = run(args, size, precision, work)
                except BenchError as error:
                    print(f"{size:<6}{precision:<10}{error}", flush=True)
                    failed = True
                    continue
                results.append(one)
                print(f"{size:<6}{precision:<10}{one['tokens_per_second']:>9,.0f}{one['published']:>11,}"
                      f"{one['ratio']:>7.3f}x{one['peak_bytes'] / GIB:>7.1f}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
