#!/usr/bin/env python3
"""Fine-tuning Llama 3.1 8B on one GPU: LoRA, LoRA over a float8 base, QLoRA (qlora8: the base's GEMMs in float8) and DPO of
Quench next to Transformers + PEFT with Liger's kernels, and with torch.compile, on the same GPU.

  bench/gpu_finetune.py --rows lora,lora_float8,qlora,qlora8,dpo --json results.json

Shapes of bench/workloads/8b.json with random weights. lora: 2 x 4,096 tokens a step; dpo: 2 pairs whose answers are 1,024
tokens after a prompt of 1,024, so that each of the four rows has 2,048; tok/s count the prompt for each answer. The peers run with and without gradient
checkpointing; one that does not fit is reported with its error.
"""
import json
import pathlib
import random
import sys
import tempfile

from gpu_common import (BENCH, BenchError, Shape, json_lines, load_run_config, median_of_last_half, quench_train, run_program,
                        step_times, write_random_tokens)
from gpu_training import GIB, attempt, workload_parser

ROWS = {
    "lora": dict(task="sft", base="bf16", rows=2, length=4096),
    "lora_float8": dict(task="sft", base="bf16", rows=2, length=4096, recipe="float8_tensorwise", peers=[]),
    "lora_rowwise": dict(task="sft", base="bf16", rows=2, length=4096, recipe="float8_rowwise", peers=[]),
    "lora_float8_stored": dict(task="sft", base="float8", rows=2, length=4096, peers=[]),
    "qlora": dict(task="sft", base="nf4", rows=2, length=4096),
    "qlora8": dict(task="sft", base="nf4", rows=2, length=4096, recipe="float8_tensorwise"),
    "qlora8_rowwise": dict(task="sft", base="nf4", rows=2, length=4096, recipe="float8_rowwise", peers=[]),
    "dpo": dict(task="dpo", base="bf16", rows=2, length=2048, prompt=1024),
}
PEERS = {"liger": ["--kernels", "liger"], "liger_checkpoint": ["--kernels", "liger", "--checkpoint"],
         "compile": ["--kernels", "compile"], "compile_checkpoint": ["--kernels", "compile", "--checkpoint"]}
STORAGE = {"nf4": "nf4", "float8": "float8"}


def write_pairs(path, count, prompt, answer):
    """Records whose tokens are their bytes; the tokenizer adds one token before the prompt and one after an answer."""
    generator = random.Random(1)
    letters = lambda n: "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=n))
    with open(path, "w") as file:
        for _ in range(count):
            file.write(json.dumps(dict(prompt=letters(prompt - 1), chosen=letters(answer - 1), rejected=letters(answer - 1)))
                       + "\n")


def our_config(args, config, row, folder):
    config = json.loads(json.dumps(config))
    tokens = row["rows"] * row["length"] * (2 if row["task"] == "dpo" else 1)
    config["training"] |= dict(steps=args.steps, micro_batch_size=row["rows"], global_batch_size=row["rows"],
                               activation_checkpoint=args.recompute)
    config["lora"] = dict(rank=16, alpha=32, base=STORAGE.get(row["base"], "dense"))
    config["optimizer"] = dict(lr=1e-4, betas=[0.9, 0.95], weight_decay=0.0)
    if recipe := row.get("recipe"):
        config["recipe"] = dict(name=recipe)
    if row["task"] == "dpo":
        write_pairs(folder / "pairs.jsonl", row["rows"] * args.steps, row["prompt"], row["length"] - row["prompt"])
        config["data"] = dict(train=[str(folder / "pairs.jsonl")], format="jsonl", seq_len=2 * row["length"] - row["prompt"], shuffle=False,
                              tokenizer="bytes", cache=str(folder / "cache"))
        config["preference"] = dict(loss="dpo", beta=0.1)
    else:
        write_random_tokens(folder / "tokens.npy", Shape(config).vocab, tokens * args.steps + 1)
        config["data"] |= dict(train=[str(folder / "tokens.npy")], seq_len=row["length"])
    return config, tokens


def run_ours(args, config, row, folder):
    folder.mkdir(parents=True, exist_ok=True)
    config, tokens = our_config(args, config, row, folder)
    records, _ = quench_train(args.quench, config, folder, args.extra, args.device, args.timeout)
    if len(records) < args.steps:
        raise BenchError(f"{len(records)} of {args.steps} steps are in metrics.jsonl")
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second=tokens / step * 1e3, loss=records[-1]["loss"],
                peak_bytes=max(record["memory_bytes"] or 0 for record in records))


def run_peer(args, path, row, options, folder):
    folder.mkdir(parents=True, exist_ok=True)
    command = [args.python, BENCH / "peer" / "hf_lora.py", "--config", path, "--task", row["task"], "--base", row["base"],
               "--rows", row["rows"], "--length", row["length"], "--prompt", row.get("prompt", 0), "--steps", args.steps,
               "--device", args.device, *options]
    return json_lines(run_program(command, args.timeout, folder / "peer.log"))[-1]["summary"]


def measure(args, name, path, work):
    print(name, file=sys.stderr, flush=True)
    row = ROWS[name]
    config = load_run_config(path)
    config["lora"] = dict(rank=16, alpha=32)
    written = work / "shape.json"
    written.write_text(json.dumps(config, indent=1))
    result = dict(row=name, quench=attempt("quench", run_ours, args, config, row, work / name))
    report(name, "quench", result["quench"])
    for peer in args.peers.split(",") if args.peers else []:
        if peer in row.get("peers", PEERS):
            result[peer] = attempt(peer, run_peer, args, written, row, PEERS[peer], work / f"{name}-{peer}")
            report(name, peer, result[peer], result["quench"])
    return result


def report(name, side, values, ours=None):
    if "error" in values:
        print(f"{name:<20}{side:<20}{values['error']}", flush=True)
        return
    ratios = ""
    if ours and "error" not in ours:
        ratios = f"   ours: {ours['tokens_per_second'] / values['tokens_per_second']:.3f}x speed"
        if values["peak_bytes"]:
            ratios += f", {ours['peak_bytes'] / values['peak_bytes']:.3f}x memory"
    print(f"{name:<20}{side:<20}{values['tokens_per_second']:>9,.0f} tok/s {values['step_ms']:>9.1f} ms "
          f"{values['peak_bytes'] / GIB:>7.2f} GiB  loss {values['loss']:.4f}{ratios}", flush=True)


def main():
    parser = workload_parser(__doc__, "8b")
    parser.set_defaults(steps=8)
    parser.add_argument("--rows", default="lora,lora_float8,qlora,qlora8,dpo", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--peers", default="liger,liger_checkpoint,compile", help=f"of {', '.join(PEERS)}; empty: none")
    parser.add_argument("--recompute", default="none", help="training.activation_checkpoint of Quench")
    args = parser.parse_args()
    path = BENCH / "workloads" / f"{args.workloads}.json"
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(args.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        for name in args.rows.split(","):
            results.append(measure(args, name, path, work))
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
