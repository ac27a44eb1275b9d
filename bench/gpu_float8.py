#!/usr/bin/env python3
"""Float8 training steps on one GPU: Quench's recipes beside TorchAO's and TransformerEngine's, same workload files, one after
the other in one call.

  TORCHAO_PATH=folder bench/gpu_float8.py --workloads 8b-l8,1b --json results.json
  bench/gpu_float8.py --peers te_delayed,te_current,bf16 --recipes bf16,float8_tensorwise --json results.json

Prints each run's result when it ends, and at last for each tokens/s (median step of the last half), its ratio to PyTorch's
bf16, to TorchAO's run of the same recipe and to TransformerEngine's fastest run that converts the same layers, model TFLOP/s,
MFU against the bf16 peak and peak memory with its ratio to TorchAO's. "+head" converts the head too, of a peer as well,
"+delayed" uses delayed scaling, "+attention" converts TransformerEngine's attention; te_bf16 are its modules without float8.
"auto" must be as fast as the best of the others without "+head". A run that fails is reported with its error line and the rest
goes on; the exit status is then 1.

Needs a Python with PyTorch and TorchAO or TransformerEngine (--python; TORCHAO_PATH names a folder that holds torchao,
PYTHONPATH one that holds transformer_engine) and a built or packaged program (--quench).
"""
import sys

from gpu_common import (Shape, load_run_config, median_of_last_half, quench_train, recipe_section,
                        step_times, torch_train, write_random_tokens)
from gpu_training import GIB, attempt, measure_workloads, workload_parser

OURS = "bf16,float8_tensorwise,float8_rowwise,float8_rowwise_with_gw_hp,float8_tensorwise+head,auto"
PEERS = "bf16,tensorwise,rowwise"


def run_ours(args, config, shape, tokens, folder, recipe):
    config["data"]["train"] = [str(tokens)]
    config["training"]["steps"] = args.steps
    records, _ = quench_train(args.quench, dict(config, recipe=recipe_section(recipe)), folder, args.extra, args.device,
                              args.timeout)
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second=shape.tokens_per_step / step * 1e3, loss=records[-1]["loss"],
                peak_bytes=max(record["memory_bytes"] or 0 for record in records))


def run_peer(args, path, tokens, folder, recipe):
    arguments = ["--config", path, "--data", tokens, "--steps", args.steps, "--precision", "bf16", "--device", args.device]
    if args.batch:
        arguments += ["-B", args.batch, "--accumulation", 1]
    name, *converted = recipe.split("+")
    if name != "bf16":
        arguments += ["--float8", name]
    arguments += [f"--float8-{layers}" for layers in converted]
    return torch_train(args.python, arguments, folder, args.timeout)[1]


def print_result(workload, run, side):
    if "error" not in side:
        print(f"{workload} {run}: {side['tokens_per_second']:,.0f} tok/s, {side['step_ms']:.1f} ms a step, "
              f"{side.get('peak_bytes', 0) / GIB:.2f} GiB, loss {side['loss']:.4f}", flush=True)


def measure(args, path, work):
    name, folder = path.stem, work / path.stem
    print(name, file=sys.stderr)
    config = load_run_config(path)
    if args.batch:
        config["training"].update(micro_batch_size=args.batch, global_batch_size=args.batch)
    shape = Shape(config)
    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "tokens.npy"
    write_random_tokens(tokens, shape.vocab, shape.tokens_per_step * args.steps + 1)
    row = dict(workload=name, tokens_per_step=shape.tokens_per_step, quench={}, torch={})
    for recipe in filter(None, args.peers.split(",")):
        row["torch"][recipe] = attempt(f"torch {recipe}", run_peer, args, path, tokens, folder / f"torch-{recipe}", recipe)
        print_result(name, f"torch {recipe}", row["torch"][recipe])
    for recipe in filter(None, args.recipes.split(",")):
        row["quench"][recipe] = attempt(f"quench {recipe}", run_ours, args, config, shape, tokens, folder / recipe, recipe)
        print_result(name, f"quench {recipe}", row["quench"][recipe])
    for side in (*row["quench"].values(), *row["torch"].values()):
        if "error" not in side:
            side["model_tflops"] = shape.flops_per_token * side["tokens_per_second"] / 1e12
            side["mfu"] = side["model_tflops"] / args.peak_tflops
    return row


def same_recipe(recipe):
    """TorchAO's run that one of ours is compared with; its recipes leave the head in bf16."""
    return recipe.partition("+")[0].removeprefix("float8_")


def fastest_te(peers, recipe):
    """TransformerEngine's fastest run that converts the same layers as ours; None: there is none."""
    ours, *layers = recipe.split("+")
    names = ["te_bf16"] if ours == "bf16" else ["te_current", "te_delayed"]
    runs = []
    for peer, side in peers.items():
        name, *converted = peer.split("+")
        if name in names and set(converted) == set(layers) - {"delayed"} and "error" not in side:
            runs.append(side)
    return max(runs, key=lambda side: side["tokens_per_second"], default=None)


def ratio(side, other, key):
    if not other or not side.get(key) or not other.get(key):  # failed, or memory on a CPU
        return "-"
    return f"{side[key] / other[key]:.3f}x"


def print_table(rows):
    print(f"{'workload':<9}{'run':<34}{'tok/s':>9}{'of bf16':>9}{'of ao':>8}{'of te':>8}{'TFLOP/s':>9}{'MFU':>8}{'GiB':>8}"
          f"{'of ao':>8}{'loss':>9}")
    for row in rows:
        for program in ("torch", "quench"):
            for recipe, side in row[program].items():
                label = f"{row['workload']:<9}{program + ' ' + recipe:<34}"
                if "error" in side:
                    print(label + side["error"])
                    continue
                ours = program == "quench"
                peer = row["torch"].get(same_recipe(recipe)) if ours else None
                engine = fastest_te(row["torch"], recipe) if ours else None
                print(f"{label}{side['tokens_per_second']:>9,.0f}"
                      f"{ratio(side, row['torch'].get('bf16'), 'tokens_per_second'):>9}"
                      f"{ratio(side, peer, 'tokens_per_second'):>8}{ratio(side, engine, 'tokens_per_second'):>8}"
                      f"{side['model_tflops']:>9.0f}{side['mfu']:>8.1%}"
                      f"{side.get('peak_bytes', 0) / GIB:>8.2f}{ratio(side, peer, 'peak_bytes'):>8}{side['loss']:>9.4f}")


def main():
    parser = workload_parser(__doc__, "8b-l8,1b")
    parser.add_argument("--recipes", default=OURS, help="our runs; may be empty")
    parser.add_argument("--peers", default=PEERS, help="PyTorch's, TorchAO's and TransformerEngine's runs; may be empty")
    parser.add_argument("--batch", type=int, help="sequences of a step, in one micro-batch; default: the workload's")
    args = parser.parse_args()
    rows = measure_workloads(args, measure)
    print_table(rows)
    if any("error" in side for row in rows for program in ("quench", "torch") for side in row[program].values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
