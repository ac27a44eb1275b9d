#!/usr/bin/env python3
"""Sharded training on several GPUs of one machine: Quench, and PyTorch FSDP2 beside it where its script is named.

  bench/gpu_fsdp.py --gpus 2 --workloads 8b-l8,8b --single --json results.json
  bench/gpu_fsdp.py --gpus 2 --workloads 8b-l8 --peer PATH/torch_fsdp.py      (torch_llama.py lies beside it)
  bench/gpu_fsdp.py --gpus 2 --workloads 8b-l8 --vary values=--parallel.float8_all_gather=false --vary ctas8:NCCL_MAX_CTAS=8
  bench/gpu_fsdp.py --gpus 2 --workloads "" --curve 1b --curve-steps 60
  bench/gpu_fsdp.py --gpus 2 --workloads "" --save 8b --save-folder /dev/shm

Both keep f32 master weights and moments, compute in bf16 (or float8) and sum gradients in f32. Prints for each workload
and recipe tokens/s of a GPU (median step of the last half), on one GPU too where the model fits it (--single), peak
memory of a GPU and the share of a step in which computation waited for other GPUs. --vary runs Quench once more with an
argument (NAME=--key=value) or a variable (NAME:VARIABLE=value). --curve compares the losses of one GPU and of several on
the same batches; --save tells how long a save with optimizer state keeps the training.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

from gpu_common import (BENCH, BenchError, Shape, json_lines, last_error_line, load_run_config, median_of_last_half, recipe_section,
                        program_environment, run_program, step_times, write_random_tokens)

GIB = 2.0**30
PEER_MODES = {"bf16": "bf16", "float8_tensorwise": "fp8-tensor", "float8_rowwise": "fp8-row"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_learnable_tokens(path, vocab, count, seed=1):
    """Ids with something to learn: of 4,096 different ones, the next follows from the one before nine times in ten."""
    import numpy

    random = numpy.random.default_rng(seed)
    words = min(4096, vocab - 3)
    after, ids = random.permutation(words), numpy.empty(count, dtype=numpy.int32)
    jumps, anywhere = random.random(count) < 0.1, random.integers(0, words, size=count)
    now = 0
    for i in range(count):
        now = anywhere[i] if jumps[i] else after[now]
        ids[i] = now
    numpy.save(path, ids + 3)


def train(args, config, folder, gpus, overrides, variables=()):
    """metrics.jsonl of a run on that many GPUs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(config, indent=1))
    command = [args.quench, "train", folder / "run.json", "--device", args.device, f"--run.folder={folder / 'run'}",
               "--checkpoint.resume=never", *overrides]
    port, processes = free_port(), []
    for rank in range(gpus):
        environment = program_environment(args.quench) | dict(variables)
        if gpus > 1:
            environment |= dict(RANK=str(rank), WORLD_SIZE=str(gpus), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(gpus),
                                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        log = open(folder / f"rank{rank}.log", "w")
        processes.append(subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, env=environment))
    try:
        for rank, process in enumerate(processes):
            if process.wait(args.timeout):
                raise BenchError(f"rank {rank}: {last_error_line((folder / f'rank{rank}.log').read_text())}")
    except subprocess.TimeoutExpired as expired:
        raise BenchError(f"took more than {args.timeout} s") from expired
    finally:
        for process in processes:
            process.kill()
    return json_lines((folder / "run" / "metrics" / "metrics.jsonl").read_text())


def f32_states(config, shape, gpus, steps, recipe):
    config = json.loads(json.dumps(config))
    config["recipe"] = recipe_section(recipe)
    config["training"] |= {"steps": steps, "global_batch_size": shape.batch * gpus, "master_dtype": "f32",
                           "grad_dtype": "auto"}
    config["optimizer"] |= {"state": "f32", "offload_ratio": 0}
    return config


def measure(args, config, shape, folder, gpus, recipe, overrides=(), variables=()):
    config = f32_states(config, shape, gpus, args.steps, recipe)
    records = train(args, config, folder, gpus, [*args.extra, *overrides], variables)
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second_per_gpu=shape.batch * shape.seq_len / step * 1e3,
                peak_bytes=max(record["memory_bytes"] or 0 for record in records),
                waiting=records[-1].get("communication_share"), losses=[record["loss"] for record in records])


def peer(args, name, shape, recipe):
    command = ["torchrun", "--standalone", f"--nproc-per-node={args.gpus}", args.peer, name, shape.batch, shape.seq_len,
               PEER_MODES[recipe.split("+")[0]]]
    row = json_lines(run_program(command, args.timeout, environment=dict(os.environ)))[-1]
    return dict(step_ms=row["step_ms"], tokens_per_second_per_gpu=row["tps_per_gpu"], peak_bytes=row["mem_gib"] * GIB)


def variation(text):
    """(name, overrides, variables) of --vary."""
    if ":" in text.split("=")[0]:
        name, variable = text.split(":", 1)
        return name, [], [tuple(variable.split("=", 1))]
    name, arguments = text.split("=", 1)
    return name, arguments.split(), []


def workload(name, temporary):
    path = pathlib.Path(name) if name.endswith(".json") else BENCH / "workloads" / f"{name}.json"
    config = load_run_config(path)
    return path.stem, config, Shape(config), pathlib.Path(temporary)


def calm_start(config, steps):
    """A rate that rises all the time, to a tenth: where it begins high the run is chaotic, and the order of sums decides
    its course."""
    config["lr_schedule"] = {"name": "constant", "warmup_steps": steps}
    config["optimizer"]["lr"] *= 0.1


def curve(args, name, recipe, temporary):
    """Losses of one GPU and of several on the same batches, and their largest relative difference."""
    name, config, shape, folder = workload(name, temporary)
    tokens = folder / "learnable.npy"
    write_learnable_tokens(tokens, shape.vocab, shape.batch * shape.seq_len * args.gpus * args.curve_steps + 1)
    config["data"]["train"] = [str(tokens)]
    calm_start(config, args.curve_steps)
    losses = []
    for gpus in (1, args.gpus):
        run = f32_states(config, shape, args.gpus, args.curve_steps, recipe)  # one GPU takes the micro-batches in turn
        losses.append([record["loss"] for record in train(args, run, folder / f"curve{gpus}", gpus, args.extra)])
    differences = [abs(a - b) / a for a, b in zip(*losses)]
    return dict(workload=name, recipe=recipe, one_gpu=losses[0], several=losses[1], largest_difference=max(differences))


def save_stall(args, name, temporary):
    """Milliseconds by which a save of weights and optimizer state makes its step longer."""
    name, config, shape, folder = workload(name, temporary)
    tokens, steps = folder / "tokens.npy", 12
    write_random_tokens(tokens, shape.vocab, shape.batch * shape.seq_len * args.gpus * steps + 1)
    config = f32_states(config, shape, args.gpus, steps, "bf16")
    config["data"]["train"] = [str(tokens)]
    checkpoints = pathlib.Path(args.save_folder or folder) / "gpu_fsdp_checkpoints"
    config["checkpoint"] = {"interval": 6, "keep_latest": 1, "save_final": False, "folder": str(checkpoints)}
    try:
        records = train(args, config, folder / "save", args.gpus, args.extra)
    finally:
        shutil.rmtree(checkpoints, ignore_errors=True)
    gaps = step_times(records)
    usual = median_of_last_half(gaps[:5])
    # The save follows the record of step 6; the next steps run while it is written.
    return dict(workload=name, step_ms=usual, stall_ms=gaps[5] - usual,
                while_writing_ms=max(gaps[6:]) - usual if gaps[6:] else None)


def attempt(what, function, *arguments):
    print(f"  {what} ...", file=sys.stderr, flush=True)
    try:
        return function(*arguments)
    except BenchError as error:
        return dict(error=str(error))


def show(row):
    for side, s in row.items():
        if not isinstance(s, dict):
            continue
        head = f"{row['workload']:<10}{row['recipe']:<20}{side:<12}"
        if "error" in s:
            print(head + s["error"])
            continue
        waiting = f"{s['waiting']:.1%}" if s.get("waiting") is not None else "-"
        print(f"{head}{s['tokens_per_second_per_gpu']:>10,.0f} tok/s a GPU{s['peak_bytes'] / GIB:>9.2f} GiB  waiting {waiting}",
              flush=True)
    speed = lambda side: row.get(side, {}).get("tokens_per_second_per_gpu")
    for other, words in (("one_gpu", "of one GPU"), ("torch", "of PyTorch")):
        if speed("quench") and speed(other):
            print(f"{'':<30}{speed('quench') / speed(other):.1%} {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--workloads", default="8b-l8,8b", help="'' for none")
    parser.add_argument("--recipes", default="bf16,float8_tensorwise,float8_rowwise")
    parser.add_argument("--single", action="store_true", help="measure one GPU too")
    parser.add_argument("--peer", help="the PyTorch script; needs torchrun")
    parser.add_argument("--vary", action="append", default=[], help="'NAME=--key=value --key=value' or NAME:VARIABLE=value")
    parser.add_argument("--curve", help="workload whose losses on one GPU and on several are compared")
    parser.add_argument("--curve-steps", type=int, default=60)
    parser.add_argument("--save", help="workload whose save is timed")
    parser.add_argument("--save-folder", help="for its checkpoint; default: a temporary one")
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
            write_random_tokens(tokens, shape.vocab, shape.batch * shape.seq_len * args.gpus * args.steps + 1)
            config["data"]["train"] = [str(tokens)]
            for recipe in args.recipes.split(","):
                row = dict(workload=name, recipe=recipe)
                run = lambda what, gpus, *more: attempt(f"{name} {recipe}: {what}", measure, args, config, shape,
                                                        folder / "run", gpus, recipe, *more)
                row["quench"] = run("Quench", args.gpus)
                for side, overrides, variables in map(variation, args.vary):
                    row[side] = run(side, args.gpus, overrides, variables)
                if args.single:
                    row["one_gpu"] = run("one GPU", 1)
                if args.peer:
                    row["torch"] = attempt(f"{name} {recipe}: PyTorch", peer, args, name, shape, recipe)
                show(row)
                rows.append(row)
        if args.curve:
            for recipe in args.recipes.split(","):
                row = attempt(f"{args.curve} {recipe}: losses", curve, args, args.curve, recipe, temporary)
                rows.append(dict(curve=row))
                print(f"losses of {args.curve} under {recipe}, 1 and {args.gpus} GPUs: " +
                      (row.get("error") or f"{row['one_gpu'][0]:.4f} to {row['one_gpu'][-1]:.4f}, at most "
                                           f"{row['largest_difference']:.4%} apart"), flush=True)
        if args.save:
            row = attempt(f"{args.save}: save", save_stall, args, args.save, temporary)
            rows.append(dict(save=row))
            print(f"save of {args.save} with optimizer state: " +
                  (row.get("error") or f"{row['stall_ms']:.0f} ms longer than a step of {row['step_ms']:.0f} ms"),
                  flush=True)
    failed = any("error" in side for row in rows for side in row.values() if isinstance(side, dict))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
