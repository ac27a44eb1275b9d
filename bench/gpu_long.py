#!/usr/bin/env python3
"""Long sequences on one GPU: tokens/s and peak memory of Llama 3.1 8B by length, next to the estimate.

  bench/gpu_long.py --task qlora --lengths 32768:3,131072:2,393216:1 --json long.json

  bench/gpu_long.py --task full8 --model qwen3-30b-a3b --layers 48 --lengths 4096:6,32768:3 --ways away

Shapes of bench/workloads/8b.json, or of a model of configs/models, with random weights and tokens. Tasks: qlora, lora, full
(bf16 AdamW state, 30% of it in host memory), full8 (8-bit AdamW state in host memory, streamed through the GPU). LENGTH:STEPS, or LENGTH:STEPS:OFFLOADED for a number of
layers whose inputs are in host memory (all without). --ways names what is run at each length:
  whole    activation_checkpoint full alone
  tiles    with feed-forward tiles of --tile tokens
  away     with tiles and inputs in host memory
  kept     the same, with attention's results in host memory too
Losses of one length are comparable: same weights, same tokens. --layers takes fewer layers, whose peak is that of all but
for weights, in a time that fits a short lease. "-- --training.memory_limit=80GB" makes an H200 an H100. Peaks are live tensors; the
estimate is that of `quench estimate` with the same arguments.
"""
import json
import pathlib
import sys
import tempfile

from gpu_common import BENCH, BenchError, Shape, load_run_config, program_environment, quench_train, run_program, step_times
from gpu_common import write_random_tokens
from gpu_training import GIB, attempt, workload_parser

TASKS = {"qlora": dict(rank=16, alpha=32, base="nf4"), "lora": dict(rank=16, alpha=32, base="dense"), "full": None,
         "full8": None}


def config_of(args, length, steps, way, offloaded):
    config = load_run_config(BENCH / "workloads" / "8b.json")
    if args.model:
        config["model"] = json.loads((BENCH.parent / "configs" / "models" / f"{args.model}.json").read_text())
    config["model"] |= dict(num_hidden_layers=args.layers, max_position_embeddings=length)
    config["data"]["seq_len"] = length
    config["training"] |= dict(steps=steps, micro_batch_size=1, global_batch_size=args.accumulate, activation_checkpoint="full")
    if way != "whole":
        config["training"]["mlp_tile_tokens"] = args.tile
    if way in ("away", "kept"):
        config["training"]["offload_layers"] = args.layers if offloaded is None else offloaded
    if way == "kept":
        config["training"]["keep_attention_layers"] = args.layers if offloaded is None else offloaded
    if lora := TASKS[args.task]:
        config["lora"] = dict(lora)
        config["optimizer"] = dict(lr=1e-4, betas=[0.9, 0.95], weight_decay=0.0)
        del config["training"]["master_dtype"], config["training"]["grad_dtype"]
    if args.task == "full8":
        config["optimizer"] |= dict(name="adamw_8bit", offload_ratio=1, offload_streamed=True)
    return config


def estimate(args, config, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(config))
    command = [args.quench, "estimate", folder / "plan.json", "--device", args.device, "--json", *args.extra]
    planned = json.loads(run_program(command, args.timeout, folder / "estimate.log", program_environment(args.quench)))
    return dict(peak_bytes=sum(holder["bytes"] for holder in planned["memory_holders"]), total_bytes=planned["total_bytes"],
                host_bytes=planned["host_bytes"], holders=planned["memory_holders"],
                step_seconds=(planned["step_time"] or {}).get("seconds"))


def run(args, config, folder):
    records, _ = quench_train(args.quench, config, folder, args.extra, args.device, args.timeout)
    if not records:
        raise BenchError("no step is in metrics.jsonl")
    shape = Shape(config)
    steps = step_times(records)  # the first step has no predecessor: its own time, with everything that starts up
    ms = min(steps) if steps else records[-1]["step_ms"]
    return dict(step_ms=ms, tokens_per_second=shape.tokens_per_step / ms * 1e3, losses=[r["loss"] for r in records],
                peak_bytes=max(r["memory_bytes"] or 0 for r in records), steps=len(records))


def measure(args, spec, work):
    length, steps, *rest = (int(part) for part in spec.split(":"))
    tokens = work / f"{length}.npy"
    rows = []
    for way in args.ways.split(","):
        config = config_of(args, length, steps, way, rest[0] if rest else None)
        folder = work / f"{length}-{way}"
        row = dict(length=length, way=way, layers=args.layers, task=args.task, tile=config["training"].get("mlp_tile_tokens", 0),
                   offloaded=config["training"].get("offload_layers", 0))
        config["data"]["train"] = [str(tokens)]
        if not args.plan and not tokens.exists():
            write_random_tokens(tokens, Shape(config).vocab, length * args.accumulate * steps + 1)
        row["estimate"] = attempt(f"{length} {way}, estimate", estimate, args, config, folder)
        row["run"] = attempt(f"{length} {way}", run, args, config, folder) if not args.plan else None
        rows.append(row)
        print_row(row)
    return rows


def gib(row, key):
    return f"{row[key] / GIB:>9.2f}" if row and row.get(key) else f"{'-':>9}"


def print_row(row):
    plan, ran = row["estimate"], row["run"]
    text = f"{row['length']:>8} {row['way']:<6} tile {row['tile']:>6} away {row['offloaded']:>3}"
    if "error" in plan:
        return print(f"{text}  estimate: {plan['error']}", flush=True)
    text += f"  planned{gib(plan, 'peak_bytes')} host{gib(plan, 'host_bytes')}"
    if ran is None:
        return print(text, flush=True)
    if "error" in ran:
        return print(f"{text}  {ran['error']}", flush=True)
    print(f"{text}  peak{gib(ran, 'peak_bytes')} ({ran['peak_bytes'] / plan['peak_bytes'] - 1:+.1%})"
          f"{ran['tokens_per_second']:>10,.0f} tok/s{ran['step_ms'] / 1e3:>8.1f} s"
          f"  loss {' '.join(f'{loss:.5f}' for loss in ran['losses'])}", flush=True)


def main():
    parser = workload_parser(__doc__, "8b")
    parser.add_argument("--task", choices=TASKS, default="qlora")
    parser.add_argument("--lengths", default="32768:3,131072:2")
    parser.add_argument("--ways", default="whole,tiles,away,kept")
    parser.add_argument("--model", help="name in configs/models; default: the 8B of bench/workloads")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tile", type=int, default=8192)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--plan", action="store_true", help="estimates alone")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(args.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        for spec in args.lengths.split(","):
            rows += measure(args, spec, work)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if any("error" in (side or {}) for row in rows for side in (row["estimate"], row["run"])) else 0


if __name__ == "__main__":
    sys.exit(main())
