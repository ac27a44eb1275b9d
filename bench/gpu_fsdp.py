#!/usr/bin/env python3
"""Sharded training on several GPUs of one machine: Quench, and PyTorch FSDP2 beside it where its script is named.

  bench/gpu_fsdp.py --gpus 2 --workloads 8b-l8,8b --recipes bf16,float8_tensorwise,float8_rowwise --json results.json
  bench/gpu_fsdp.py --gpus 2 --workloads 8b-l8 --peer PATH/torch_fsdp.py

Both keep f32 master weights and moments, compute in bf16 (or float8) and sum gradients in f32. Prints for each workload
and recipe tokens/s of a GPU (median step of the last half), on one GPU too where the model fits it (--single), peak
memory of a GPU and the share of a step in which computation waited for other GPUs.
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

from gpu_common import (BENCH, BenchError, Shape, json_lines, last_error_line, load_run_config, median_of_last_half,
                        program_environment, run_program, step_times, write_random_tokens)

GIB = 2.0**30
PEER_MODES = {"bf16": "bf16", "float8_tensorwise": "fp8-tensor", "float8_rowwise": "fp8-row"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(args, config, folder, gpus, overrides):
    """metrics.jsonl of a run on that many GPUs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(config, indent=1))
    command = [args.quench, "train", folder / "run.json", "--device", args.device, f"--run.folder={folder / 'run'}",
               "--checkpoint.resume=never", *overrides]
    port, processes = free_port(), []
    for rank in range(gpus):
        environment = program_environment(args.quench)
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


def measure(args, config, shape, folder, gpus, recipe):
    config = json.loads(json.dumps(config))
    config["recipe"] = {"name": recipe}
    config["training"] |= {"steps": args.steps, "global_batch_size": shape.batch * gpus, "master_dtype": "f32",
                           "grad_dtype": "auto"}
    config["optimizer"] |= {"state": "f32", "offload_ratio": 0}
    records = train(args, config, folder, gpus, args.extra)
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second_per_gpu=shape.batch * shape.seq_len / step * 1e3,
                peak_bytes=max(record["memory_bytes"] or 0 for record in records),
                waiting=records[-1].get("communication_share"), losses=[record["loss"] for record in records])


def peer(args, name, shape, recipe):
    command = ["torchrun", "--standalone", f"--nproc-per-node={args.gpus}", args.peer, name, shape.batch, shape.seq_len,
               PEER_MODES[recipe]]
    row = json_lines(run_program(command, args.timeout, environment=dict(os.environ)))[-1]
    return dict(step_ms=row["step_ms"], tokens_per_second_per_gpu=row["tps_per_gpu"], peak_bytes=row["mem_gib"] * GIB)


def attempt(what, function, *arguments):
    print(f"  {what} ...", file=sys.stderr, flush=True)
    try:
        return function(*arguments)
    except BenchError as error:
        return dict(error=str(error))


def show(row):
    for side in ("quench", "one_gpu", "torch"):
        if side not in row:
            continue
        s, head = row[side], f"{row['workload']:<10}{row['recipe']:<20}{side:<9}"
        if "error" in s:
            print(head + s["error"])
            continue
        waiting = f"{s['waiting']:.1%}" if s.get("waiting") is not None else "-"
        print(f"{head}{s['tokens_per_second_per_gpu']:>10,.0f} tok/s a GPU{s['peak_bytes'] / GIB:>9.2f} GiB  waiting {waiting}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--workloads", default="8b-l8,8b")
    parser.add_argument("--recipes", default="bf16,float8_tensorwise,float8_rowwise")
    parser.add_argument("--single", action="store_true", help="measure one GPU too")
    parser.add_argument("--peer", help="the PyTorch script; needs torchrun")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.workloads.split(","):
            path = pathlib.Path(name) if name.endswith(".json") else BENCH / "workloads" / f"{name}.json"
            config, folder = load_run_config(path), pathlib.Path(temporary)
            shape = Shape(config)
            tokens = folder / "tokens.npy"
            write_random_tokens(tokens, shape.vocab, shape.batch * shape.seq_len * args.gpus * args.steps + 1)
            config["data"]["train"] = [str(tokens)]
            for recipe in args.recipes.split(","):
                row = dict(workload=path.stem, recipe=recipe)
                row["quench"] = attempt(f"{path.stem} {recipe}", measure, args, config, shape, folder / "many", args.gpus,
                                        recipe)
                if args.single:
                    row["one_gpu"] = attempt("on one GPU", measure, args, config, shape, folder / "one", 1, recipe)
                if args.peer:
                    row["torch"] = attempt("torch", peer, args, path.stem, shape, recipe)
                show(row)
                failed |= any("error" in side for side in row.values() if isinstance(side, dict))
                rows.append(row)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
