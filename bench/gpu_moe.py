#!/usr/bin/env python3
"""Training steps of models with experts on one GPU: the recipes of Quench, beside a PyTorch program where one is given.

  bench/gpu_moe.py --workloads mixtral-l4,qwen3moe-l8 --peer PROGRAM.py --json results.json

Prints tokens/s (median step of the last half) and peak memory of each recipe, and their ratios to the fastest of the
peer's modes. The peer is run as `PROGRAM.py --model WORKLOAD --modes A,B --steps N` and prints one JSON line a mode with
its name (mode), tokens/s (tps) and memory (mem_gib), or what went wrong (error). A side that fails is reported with its
error line and the rest goes on; the exit status is then 1.

Needs a built or packaged program (--quench; scripts/gpu_test.sh pack), numpy, and PyTorch for the peer (--python).
"""
import argparse
import json
import pathlib
import sys
import tempfile

from gpu_common import (BENCH, BenchError, add_program_options, json_lines, load_run_config, median_of_last_half,
                        quench_train, recipe_section, run_program, step_times, write_random_tokens)

GIB = 2.0**30


def run_ours(args, config, recipe, tokens_per_step, folder):
    config = {**config, "recipe": recipe_section(recipe)}
    records, _ = quench_train(args.quench, config, folder, args.extra, args.device, args.timeout)
    if len(records) < args.steps:
        raise BenchError(f"{len(records)} of {args.steps} steps are in metrics.jsonl")
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second=tokens_per_step / step * 1e3, loss=records[-1]["loss"],
                gib=max(record["memory_bytes"] or 0 for record in records) / GIB)


def run_peer(args, workload, folder):
    command = [args.python, args.peer, "--model", workload, "--modes", args.peer_modes, "--steps", args.steps]
    modes = json_lines(run_program(command, args.timeout, folder / "peer.log"))
    return {m["mode"]: dict(error=m["error"]) if "error" in m else dict(tokens_per_second=m["tps"], gib=m["mem_gib"])
            for m in modes if "mode" in m}


def attempt(what, function, *arguments):
    print(f"  {what} ...", file=sys.stderr, flush=True)
    try:
        return function(*arguments)
    except BenchError as error:
        print(f"  {what} failed: {error}", file=sys.stderr, flush=True)
        return dict(error=str(error))


def measure(args, path, work):
    print(path.stem, file=sys.stderr)
    config, folder = load_run_config(path), work / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    tokens_per_step = config["training"]["global_batch_size"] * config["data"]["seq_len"]
    write_random_tokens(folder / "tokens.npy", config["model"]["vocab_size"], tokens_per_step * args.steps + 1)
    config["data"]["train"] = [str(folder / "tokens.npy")]
    config["training"]["steps"] = args.steps
    ours = {recipe: attempt(recipe, run_ours, args, config, recipe, tokens_per_step, folder / recipe)
            for recipe in args.recipes.split(",")}
    peer = {}
    if args.peer:
        peer = attempt("peer", run_peer, args, path.stem, folder)
        if "error" in peer:
            peer = {"peer": peer}
    return dict(workload=path.stem, tokens_per_step=tokens_per_step, quench=ours, peer=peer)


def table(rows):
    lines = [f"{'workload':<12} {'side':<22} {'tok/s':>8} {'GiB':>6} {'of best peer':>13} {'memory':>7}"]
    for row in rows:
        good = [side for side in row["peer"].values() if "error" not in side]
        best = max((side["tokens_per_second"] for side in good), default=None)
        memory = min((side["gib"] for side in good), default=None)
        for program in ("quench", "peer"):
            for name, side in row[program].items():
                head = f"{row['workload']:<12} {program + ' ' + name:<22}"
                if "error" in side:
                    lines.append(f"{head} failed: {side['error'][:80]}")
                    continue
                ratios = f"{side['tokens_per_second'] / best:>12.3f}x {side['gib'] / memory:>6.2f}x" if best else ""
                lines.append(f"{head} {side['tokens_per_second']:>8.0f} {side['gib']:>6.1f} {ratios}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="mixtral-l4,qwen3moe-l8", help="names in bench/workloads or files")
    parser.add_argument("--recipes", default="bf16,float8_rowwise,float8_rowwise+head,mxfp8", help="+head: the head too")
    parser.add_argument("--peer", help="the PyTorch program")
    parser.add_argument("--peer-modes", default="bf16,fp8-row")
    parser.add_argument("--steps", type=int, default=30,
                        help="fewer end while GEMM algorithms are still being tried")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--extra", nargs="*", default=[], help="further overrides of every run config")
    add_program_options(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(args.work or temporary)
        paths = [pathlib.Path(name) if name.endswith(".json") else BENCH / "workloads" / f"{name}.json"
                 for name in args.workloads.split(",")]
        rows = [measure(args, path, work) for path in paths]
    print(table(rows))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    sys.exit(any("error" in side for row in rows for program in ("quench", "peer") for side in row[program].values()))


if __name__ == "__main__":
    main()
