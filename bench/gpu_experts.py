#!/usr/bin/env python3
"""Experts shared out among the GPUs of one machine: the same losses as on one GPU, and what it costs.

  bench/gpu_experts.py --gpus 2 --json experts.json

Trains a mixture of experts on one GPU, then on several: with sharded parameters alone, with experts shared out, and with rows
that travel in MXFP8. All runs take the same steps: the global batch is that of --gpus micro-batches. Prints for each the
largest relative difference of a step's loss from that on one GPU, tokens/s of all GPUs (median step of the last half), peak
memory of a GPU, and the share of a step in which computation waited for other GPUs (median of the last half). --vary runs the
experts of all GPUs once more with an option or an environment variable, as in gpu_fsdp.py; --only-vary leaves the other layouts
out but for one GPU. Ends with status 1 where a loss differs by more than --tolerance.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from gpu_common import BENCH, BenchError, Shape, load_run_config, median_of_last_half, step_times
from gpu_fsdp import GIB, calm_start, train, variation, write_learnable_tokens


def layouts(args):
    """Name, number of GPUs, options, environment variables."""
    gpus, all_experts = args.gpus, [f"--parallel.expert={args.gpus}"]
    yield "one GPU", 1, [], {}
    if not args.only_vary:
        yield f"shard {gpus}", gpus, [], {}
        expert = 2
        while expert <= gpus:
            yield f"shard {gpus}, expert {expert}", gpus, [f"--parallel.expert={expert}"], {}
            expert *= 2
        yield f"shard {gpus}, expert {gpus}, mxfp8 rows", gpus, [*all_experts, "--parallel.expert_all_to_all=mxfp8"], {}
    for name, options, variables in map(variation, args.vary):
        yield name, gpus, [*all_experts, *options], variables


def measure(args, config, shape, folder, gpus, options, variables):
    config = json.loads(json.dumps(config))
    config["recipe"] = {"name": args.recipe}
    config["training"] |= {"steps": args.steps, "global_batch_size": shape.batch * args.gpus, "dtype": args.dtype,
                           "master_dtype": "f32"}
    calm_start(config, args.steps)
    records = train(args, config, folder, gpus, [*options, *args.extra], variables)
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second=shape.batch * args.gpus * shape.seq_len / step * 1e3,
                peak_bytes=max(record["memory_bytes"] or 0 for record in records),
                waiting=median_of_last_half([record.get("communication_share") or 0 for record in records]) if gpus > 1 else None, losses=[record["loss"] for record in records])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--config", default=str(BENCH / "workloads" / "moe-1b.json"))
    parser.add_argument("--recipe", default="bf16")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--steps", type=int, default=24, help="GEMM algorithms are tried during the first twenty")
    parser.add_argument("--tolerance", type=float, default=0.002, help="relative, of a loss")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--vary", action="append", default=[], help="'NAME=--key=value --key=value' or NAME:VARIABLE=value")
    parser.add_argument("--only-vary", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    config = load_run_config(args.config)
    shape, rows, failed = Shape(config), [], False
    print(f"{'layout':<34}{'loss differs by':>16}{'tokens/s':>12}{'of one GPU':>12}{'GiB a GPU':>11}{'waiting':>9}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_learnable_tokens(folder / "tokens.npy", shape.vocab, shape.batch * shape.seq_len * args.gpus * args.steps + 1)
        config["data"]["train"] = [str(folder / "tokens.npy")]
        for name, gpus, options, variables in layouts(args):
            try:
                row = measure(args, config, shape, folder / "run", gpus, options, variables)
            except BenchError as error:
                print(f"{name:<34}{error}", flush=True)
                rows.append(dict(layout=name, error=str(error)))
                failed = True
                continue
            rows.append(dict(layout=name) | row)
            base = rows[0] if "losses" in rows[0] else row
            difference = max(abs(a / b - 1) for a, b in zip(row["losses"], base["losses"]))
            failed |= difference > args.tolerance
            waiting = f"{row['waiting']:.1%}" if row["waiting"] is not None else "-"
            print(f"{name:<34}{difference:>16.3%}{row['tokens_per_second']:>12,.0f}"
                  f"{row['tokens_per_second'] / base['tokens_per_second']:>12.2f}{row['peak_bytes'] / GIB:>11.2f}{waiting:>9}",
                  flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
