#!/usr/bin/env python3
"""Tensor-parallel training on several GPUs of one machine: Quench with parallel.tensor, and PyTorch's tensor parallelism
beside it, plain and asynchronous.

  bench/gpu_tensor.py --gpus 2 --workloads 8b-l8 --peer --json results.json
  bench/gpu_tensor.py --gpus 2 --workloads 8b-l8 --recipes bf16 --vary none=--training.activation_checkpoint=none
  bench/gpu_tensor.py --gpus 2 --workloads "" --curve 1b --curve-steps 60

All GPUs read the same sequences; weights, gradients and moments are those of the workload (bf16), nothing is offloaded.
Prints for each workload and recipe tokens/s of all GPUs together (median step of the last half), peak memory of a GPU and
the share of a step in which computation waited for other GPUs. --vary runs Quench once more with other arguments. --curve
compares the losses of one GPU and of several on the same batches.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

from gpu_common import BENCH, BenchError, json_lines, median_of_last_half, recipe_section, run_program, step_times, write_random_tokens
from gpu_fsdp import GIB, attempt, calm_start, train, variation, workload, write_learnable_tokens

PEERS = {"torch": [], "torch_async": ["--asynchronous"]}


def prepared(config, shape, steps, recipe):
    config = json.loads(json.dumps(config))
    config["recipe"] = recipe_section(recipe)
    config["training"] |= {"steps": steps, "global_batch_size": shape.batch, "offload_layers": 0}
    return config


def measure(args, config, shape, folder, recipe, overrides=()):
    records = train(args, prepared(config, shape, args.steps, recipe), folder, args.gpus,
                    [f"--parallel.tensor={args.gpus}", *args.extra, *overrides])
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second=shape.batch * shape.seq_len / step * 1e3,
                peak_bytes=max(record["memory_bytes"] or 0 for record in records),
                waiting=records[-1].get("communication_share"), losses=[record["loss"] for record in records])


def peer(args, config, folder, options):
    path = folder / "peer.json"
    path.write_text(json.dumps(config))
    command = ["torchrun", "--standalone", f"--nproc-per-node={args.gpus}", BENCH / "peer" / "torch_tp.py", "--config", path,
               "--steps", str(args.steps), "--device", args.device, *options]
    return json_lines(run_program(command, args.timeout, environment=dict(os.environ)))[-1]


def curve(args, name, recipe, temporary):
    name, config, shape, folder = workload(name, temporary)
    tokens = folder / "learnable.npy"
    write_learnable_tokens(tokens, shape.vocab, shape.batch * shape.seq_len * args.curve_steps + 1)
    config["data"]["train"] = [str(tokens)]
    calm_start(config, args.curve_steps)
    run = prepared(config, shape, args.curve_steps, recipe)
    losses = []
    for gpus in (1, args.gpus):
        records = train(args, run, folder / f"curve{gpus}", gpus, [f"--parallel.tensor={gpus}", *args.extra])
        losses.append([record["loss"] for record in records])
    differences = [abs(a - b) / a for a, b in zip(*losses)]
    return dict(workload=name, recipe=recipe, one_gpu=losses[0], several=losses[1], largest_difference=max(differences))


def show(row):
    for side, s in row.items():
        if not isinstance(s, dict):
            continue
        head = f"{row['workload']:<10}{row['recipe']:<20}{side:<14}"
        if "error" in s:
            print(head + s["error"])
            continue
        waiting = f"  waiting {s['waiting']:.1%}" if s.get("waiting") is not None else ""
        print(f"{head}{s['tokens_per_second']:>10,.0f} tok/s{s['peak_bytes'] / GIB:>9.2f} GiB{waiting}", flush=True)
    speed = lambda side: row.get(side, {}).get("tokens_per_second")
    for side in PEERS:
        if speed("quench") and speed(side):
            print(f"{'':<30}{speed('quench') / speed(side):.1%} of {side}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--workloads", default="8b-l8", help="'' for none")
    parser.add_argument("--recipes", default="bf16,float8_tensorwise,float8_rowwise")
    parser.add_argument("--peer", action="store_true", help="measure PyTorch too, in bf16; needs torchrun")
    parser.add_argument("--vary", action="append", default=[], help="'NAME=--key=value --key=value'")
    parser.add_argument("--curve", help="workload whose losses on one GPU and on several are compared")
    parser.add_argument("--curve-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=30, help="GEMM algorithms are tried during the first twenty")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in filter(None, args.workloads.split(",")):
            name, config, shape, folder = workload(name, temporary)
            tokens = folder / "tokens.npy"
            write_random_tokens(tokens, shape.vocab, shape.batch * shape.seq_len * args.steps + 1)
            config["data"]["train"] = [str(tokens)]
            for recipe in args.recipes.split(","):
                row = dict(workload=name, recipe=recipe)
                run = lambda what, *more: attempt(f"{name} {recipe}: {what}", measure, args, config, shape, folder / "run",
                                                  recipe, *more)
                row["quench"] = run("Quench")
                for side, overrides, _ in map(variation, args.vary):
                    row[side] = run(side, overrides)
                if args.peer and recipe == "bf16":
                    for side, options in PEERS.items():
                        row[side] = attempt(f"{name}: {side}", peer, args, config, folder, options)
                show(row)
                rows.append(row)
        if args.curve:
            for recipe in args.recipes.split(","):
                row = attempt(f"{args.curve} {recipe}: losses", curve, args, args.curve, recipe, temporary)
                rows.append(dict(curve=row))
                print(f"losses of {args.curve} under {recipe}, 1 and {args.gpus} GPUs: " +
                      (row.get("error") or f"{row['one_gpu'][0]:.4f} to {row['one_gpu'][-1]:.4f}, at most "
                                           f"{row['largest_difference']:.4%} apart"), flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if any("error" in side for row in rows for side in row.values() if isinstance(side, dict)) else 0


if __name__ == "__main__":
    sys.exit(main())
