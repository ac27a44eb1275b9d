#!/usr/bin/env python3
"""Plans of `quench plan` next to sweeps on one GPU: the regret of each, and predicted next to measured rates.

  bench/gpu_plans.py --json plans.json
  bench/gpu_plans.py --requests 1-4,9 --candidates 8 --steps 6

A sweep is a grid of recipes, recomputation, optimizer state and micro-batches, by `quench estimate`: those predicted to
be fastest of what fits, others drawn at random, and the plan. Each is trained for a few steps of random tokens; the
regret is the share by which the fastest one beats the plan.
"""
import argparse
import concurrent.futures
import itertools
import json
import pathlib
import random
import sys
import tempfile

from gpu_common import BENCH, BenchError, median_of_last_half, program_environment, quench_train, run_program, step_times
from gpu_common import write_random_tokens

# Model, objective, sequence, tokens of a step, keys that are given.
REQUESTS = [
    ("smollm2-135m", "full", 2048, 131072, []),
    ("smollm2-360m", "full", 8192, 65536, []),
    ("qwen3-0.6b", "full", 4096, 65536, []),
    ("llama-3.2-1b", "full", 2048, 32768, []),
    ("llama-3.2-1b", "full", 8192, 65536, []),
    ("llama-3.2-1b", "full", 32768, 32768, []),
    ("llama-3.2-1b", "lora", 2048, 32768, []),
    ("smollm2-1.7b", "full", 2048, 32768, []),
    ("qwen3-1.7b", "full", 16384, 32768, []),
    ("llama-3.2-3b", "full", 2048, 32768, []),
    ("llama-3.2-3b", "full", 8192, 16384, ["--optimizer.name=adamw_8bit"]),
    ("llama-3.2-3b", "lora", 4096, 32768, []),
    ("llama-3.2-3b", "qlora", 4096, 32768, []),
    ("qwen3-4b", "full", 4096, 16384, ["--optimizer.name=adamw_8bit"]),
    ("qwen3-4b", "qlora", 8192, 32768, []),
    ("gemma-2-2b", "full", 4096, 16384, []),
    ("mistral-7b", "lora", 8192, 16384, []),
    ("llama-3.1-8b", "lora", 2048, 16384, []),
    ("llama-3.1-8b", "qlora", 2048, 16384, []),
    ("llama-3.1-8b", "lora", 32768, 32768, []),
]
GRID = {
    "recipe": [["--recipe.name=bf16"], ["--recipe.name=float8_rowwise"]],
    "activations": [["--training.activation_checkpoint=none"], ["--training.activation_checkpoint=selective"],
                    ["--training.activation_checkpoint=full"]],
    "state": [[], ["--optimizer.offload_ratio=1"], ["--optimizer.offload_ratio=1", "--optimizer.offload_streamed=true"]],
}


def numbers(text):
    parts = [part.split("-") for part in text.split(",")]
    return [i for part in parts for i in range(int(part[0]), int(part[-1]) + 1)]


def program(args, *command):
    return run_program([args.quench, *command], args.timeout, None, program_environment(args.quench))


def planned(args, request):
    model, objective, length, tokens, given = request
    text = program(args, "plan", "--model", model, "--objective", objective, "--gpus", "1", "--gpu", args.gpu, "--seq-len",
                   length, "--tokens-per-step", tokens, "--host-memory", args.host_memory, "--json", *given)
    return json.loads(text)


def candidates(args, request, base, folder):
    """Runs of the grid that fit, as (predicted seconds, keys), fastest first."""
    _, objective, length, tokens, given = request
    sequences = tokens // length
    sizes = [[f"--training.micro_batch_size={n}"] for n in range(1, sequences + 1) if sequences % n == 0]
    states = GRID["state"] if objective == "full" else GRID["state"][:1]
    path = folder / "base.json"
    path.write_text(json.dumps(base))
    grid = [[key for part in choice for key in part]
            for choice in itertools.product(GRID["recipe"], GRID["activations"], states, sizes)]

    def predicted(keys):
        try:
            estimate = json.loads(program(args, "estimate", path, "--gpu", args.gpu, "--json", *given, *keys))
        except BenchError:
            return None
        fits = estimate["step_time"] and estimate["total_bytes"] <= estimate["available_bytes"]
        return estimate["step_time"]["seconds"] if fits else None

    with concurrent.futures.ThreadPoolExecutor(args.processes) as pool:
        return sorted((seconds, keys) for seconds, keys in zip(pool.map(predicted, grid), grid) if seconds)


def measured(args, config, keys, folder):
    if args.dry:
        return "not run"
    try:
        records, _ = quench_train(args.quench, config, folder, [*keys, *args.extra], "cuda", args.timeout)
    except BenchError as error:
        return str(error)
    return median_of_last_half(step_times(records)) / 1e3


def sweep(args, number, work):
    request = REQUESTS[number - 1]
    model, objective, length, tokens, given = request
    folder = work / f"{number}"
    folder.mkdir()
    plan = planned(args, request)
    config = plan["config"]
    base = {**config, "training": {"global_batch_size": tokens // length, "steps": 1}}
    for section in ("recipe", "parallel"):
        base.pop(section, None)
    base["optimizer"] = {key: value for key, value in config.get("optimizer", {}).items() if not key.startswith("offload")}
    runs = candidates(args, request, base, folder)
    draw = random.Random(number)
    chosen = []
    for run in runs:  # two micro-batches or states of a recipe and a level of recomputation
        if len(chosen) < args.candidates and sum(one[1][:2] == run[1][:2] for one in chosen) < 2:
            chosen.append(run)
    rest = [run for run in runs if run not in chosen]
    chosen += draw.sample(rest, min(args.random, len(rest)))
    for one in (config, base):
        one["training"] = {**one["training"], "steps": args.steps}
        one["data"] = {**one["data"], "train": [str(folder / "tokens.npy")], "format": "npy"}
        one["checkpoint"] = {"enable": False}
        one["metrics"] = {"log_every": 1, "tensorboard": False, "progress": "off"}
    vocabulary = json.loads((BENCH.parent / "configs" / "models" / f"{model}.json").read_text())["vocab_size"]
    if not args.dry:
        write_random_tokens(folder / "tokens.npy", vocabulary, tokens * args.steps + 1)
    seconds = measured(args, config, given, folder / "plan")
    rows = [dict(keys=keys, predicted=predicted, measured=measured(args, base, [*given, *keys], folder / f"{i}"))
            for i, (predicted, keys) in enumerate(chosen)]
    return dict(number=number, model=model, objective=objective, seq_len=length, tokens=tokens, given=given,
                choices=plan["choices"], micro_batch=plan["micro_batch_size"], predicted=plan["step_time"]["seconds"],
                measured=seconds, sweep=rows)


def print_row(row):
    name = f"{row['number']:>2} {row['model']:<14}{row['objective']:<6}{row['seq_len']:>6} x {row['tokens'] // row['seq_len']:<4}"
    if isinstance(row["measured"], str):
        runs = "".join(f"\n     {one['predicted']:.3f} s {' '.join(one['keys'])}" for one in row["sweep"])
        return print(f"{name} plan: {row['measured']}, {row['predicted']:.3f} s {row['choices']} {row['micro_batch']}{runs}", flush=True)
    others = [one for one in row["sweep"] if not isinstance(one["measured"], str)]
    best = min(others, key=lambda one: one["measured"]) if others else None
    text = (f"{name}{row['tokens'] / row['measured']:>9,.0f} tok/s, predicted {row['measured'] / row['predicted'] - 1:+.1%}"
            f"; {row['choices']['recipe']}, {row['choices']['activations']}, {row['choices']['optimizer state']}, {row['micro_batch']}")
    if best:
        regret = max(0.0, row["measured"] / best["measured"] - 1)
        text += f"; best of {len(others) + 1}: regret {regret:.1%}" + (f" {' '.join(best['keys'])}" if regret > 0.01 else "")
    failed = [one for one in row["sweep"] if isinstance(one["measured"], str)]
    print(text + "".join(f"\n     {' '.join(one['keys'])}: {one['measured']}" for one in failed), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--host-memory", default="100GB")
    parser.add_argument("--requests", default=f"1-{len(REQUESTS)}", help="numbers in REQUESTS")
    parser.add_argument("--candidates", type=int, default=5, help="runs predicted to be fastest")
    parser.add_argument("--random", type=int, default=2, help="further runs")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--processes", type=int, default=2, help="estimates at a time")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--dry", action="store_true", help="plans and candidates, without runs")
    parser.add_argument("--json")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in numbers(args.requests):
            rows.append(sweep(args, number, pathlib.Path(temporary)))
            print_row(rows[-1])
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if any(isinstance(row["measured"], str) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
