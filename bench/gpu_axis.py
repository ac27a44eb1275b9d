#!/usr/bin/env python3
"""An axis of the mesh that splits one batch, on several GPUs of one machine, beside one GPU on the same tokens.

  bench/gpu_axis.py --axis context --seq-lens 65536,131072 --json results.json
  bench/gpu_axis.py --axis tensor --workload 8b-l8 --recipes bf16,float8_rowwise
  bench/gpu_axis.py --axis pipeline --seq-lens 4096 --sequences 16 --fsdp -- --training.offload_layers=0

One sequence a step (--sequences) of learnable tokens, in micro-batches of one; states as in the workload. Prints for each
recipe and length tokens/s of a GPU (median step of the last half), their ratio to one GPU, peak memory of a GPU, the
share of a step in which computation waited for other GPUs, that of the bubble of a pipeline, and the largest relative
difference of the losses. --fsdp measures the same GPUs with shards in place of the axis too.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from gpu_common import BENCH, median_of_last_half, recipe_section, step_times
from gpu_fsdp import GIB, attempt, calm_start, train, workload, write_learnable_tokens


def measure(args, config, folder, gpus, tokens, axis):
    overrides = [f"--parallel.{axis}={gpus}"] if gpus > 1 else []
    records = train(args, config, folder / "run", gpus, [*args.extra, *overrides])
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second_per_gpu=tokens / step * 1e3 / gpus,
                peak_bytes=max(record["memory_bytes"] or 0 for record in records),
                waiting=records[-1].get("communication_share"), bubble=records[-1].get("bubble"), losses=[record["loss"] for record in records])


def show(side):
    if "error" in side:
        return side["error"]
    waiting = f"{side['waiting']:.1%}" if side.get("waiting") is not None else "-"
    bubble = f"  bubble {side['bubble']:.1%}" if side.get("bubble") is not None else ""
    return (f"{side['tokens_per_second_per_gpu']:>10,.0f} tok/s a GPU{side['peak_bytes'] / GIB:>9.2f} GiB"
            f"  waiting {waiting}{bubble}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--axis", default="context", help="key of the section parallel")
    parser.add_argument("--workload", default="8b-l8")
    parser.add_argument("--seq-lens", default="65536,131072")
    parser.add_argument("--sequences", type=int, default=1, help="a step: micro-batches of the pipeline, parts of the shards")
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--recipes", default="bf16")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--json")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        name, config, shape, folder = workload(args.workload, temporary)
        lengths = [int(length) for length in args.seq_lens.split(",")]
        tokens = folder / "tokens.npy"
        write_learnable_tokens(tokens, shape.vocab, max(lengths) * args.sequences * args.steps + 1)
        config["data"]["train"] = [str(tokens)]
        config["training"] |= {"steps": args.steps, "micro_batch_size": 1, "global_batch_size": args.sequences}
        calm_start(config, args.steps)
        for length in lengths:
            config["data"]["seq_len"] = length
            config["model"]["max_position_embeddings"] = max(length, config["model"]["max_position_embeddings"])
            for recipe in args.recipes.split(","):
                config["recipe"] = recipe_section(recipe)
                row = dict(workload=name, recipe=recipe, axis=args.axis, seq_len=length)
                sides = [("one_gpu", 1, ""), ("several", args.gpus, args.axis)] + [("fsdp", args.gpus, "shard")] * args.fsdp
                for side, gpus, axis in sides:
                    row[side] = attempt(f"{recipe}, {length} tokens, {gpus} GPUs", measure, args, config, folder, gpus,
                                        length * args.sequences, axis)
                    print(f"{name:<10}{recipe:<20}{length:>8} {side:<9}{show(row[side])}", flush=True)
                rows.append(row)
                if "error" in row["one_gpu"] or "error" in row["several"]:
                    continue
                pairs = list(zip(row["one_gpu"]["losses"], row["several"]["losses"]))
                row["ratio"] = row["several"]["tokens_per_second_per_gpu"] / row["one_gpu"]["tokens_per_second_per_gpu"]
                row["largest_difference"] = max(abs(a - b) / a for a, b in pairs)
                print(f"{'':<38} {row['ratio']:.1%} of one GPU; losses {pairs[0][0]:.4f} to {pairs[-1][0]:.4f}, at most "
                      f"{row['largest_difference']:.4%} apart", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    return 1 if any("error" in row[side] for row in rows for side in ("one_gpu", "several")) else 0


if __name__ == "__main__":
    sys.exit(main())
