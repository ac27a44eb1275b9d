#!/usr/bin/env python3
"""What each recipe costs in quality: a 110M Llama trained on real text under every recipe and several seeds, with the same
data, and evaluated on held-out text.

  bench/gpu_recipe_quality.py --text corpus1.txt corpus2.txt --json quality.json

The last --held-out share of every text is the validation text. Tokens are bytes, or those of --tokenizer (a folder, or
"train" for a BPE of --vocab tokens trained on the training text). Mind the number of epochs: a model that has begun to
learn its text by heart compares nothing.
A seed decides the first weights and the order of the batches, for all recipes alike. Prints for each recipe and seed the
final validation loss over the whole held-out text, and for each recipe the mean over seeds with its difference from
bf16's and the largest difference of the training losses (means over a tenth of the steps, after the first quarter); --json
keeps the curves.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import tempfile

from gpu_common import BENCH, BenchError, add_program_options, load_run_config, quench_train, recipe_section
from gpu_loss_curve import make_tokens

LOG_EVERY = 10
RECIPES = "bf16,float8_tensorwise,float8_rowwise,float8_rowwise_with_gw_hp"


def config_of(args, tokens, recipe, seed):
    config = load_run_config(args.config)
    training, data = config["training"], config["data"]
    data.update(train=[str(tokens[0])], validation=[str(tokens[1])], seq_len=args.length, shuffle=True)
    training.update(steps=args.steps, micro_batch_size=args.batch, global_batch_size=args.batch, seed=seed, dtype="bf16",
                    master_dtype="f32")
    config["optimizer"]["lr"] = args.lr
    config["lr_schedule"]["warmup_steps"] = args.steps // 20
    config["model"]["vocab_size"] = args.vocab
    config["recipe"] = recipe_section(recipe)
    config["metrics"].update(log_every=LOG_EVERY, health_every=0)
    config["evaluation"] = dict(interval=max(1, args.steps // 10), steps=0)
    return config


def one_run(args, tokens, folder, recipe, seed):
    try:
        records, evaluations = quench_train(args.quench, config_of(args, tokens, recipe, seed), folder / f"{recipe}-{seed}",
                                            args.extra, args.device, args.timeout)
    except BenchError as error:
        print(f"  {recipe}, seed {seed}: {error}", file=sys.stderr, flush=True)
        return dict(recipe=recipe, seed=seed, error=str(error))
    curve = [[record["step"], record["values"]["loss"]] for record in evaluations]
    print(f"  {recipe}, seed {seed}: {curve[-1][1]:.4f}", file=sys.stderr, flush=True)
    return dict(recipe=recipe, seed=seed, validation=curve[-1][1], evaluations=curve,
                training=[[record["step"], record["loss"]] for record in records])


def split_texts(args, folder):
    """The beginning and the end of every text, cut at line ends: two lists of files."""
    parts = [], []
    for i, name in enumerate(args.text):
        text = pathlib.Path(name).read_bytes()
        cut = text.rfind(b"\n", 0, int(len(text) * (1 - args.held_out))) + 1
        for part, content in zip(parts, (text[:cut], text[cut:])):
            path = folder / f"{'held-out' if part is parts[1] else 'train'}-{i}.txt"
            path.write_bytes(content)
            part.append(path)
    return parts


def tokens_of(args, folder, texts, name):
    args.text = texts
    path, count = make_tokens(args, folder, args.vocab)
    return path.rename(folder / name), count


def curve_distance(run, base, first, width):
    """Largest relative difference of two runs' training losses, of means over `width` steps from step `first` on."""
    curves = [[loss for step, loss in r["training"] if step > first] for r in (run, base)]
    count = width // LOG_EVERY
    means = [[sum(c[i:i + count]) / count for i in range(len(c) - count + 1)] for c in curves]
    return max((abs(a / b - 1) for a, b in zip(*means)), default=0.0)


def print_table(runs, recipes, steps):
    of = lambda recipe: {run["seed"]: run["validation"] for run in runs if run["recipe"] == recipe and "error" not in run}
    base = of("bf16")
    base_runs = {run["seed"]: run for run in runs if run["recipe"] == "bf16" and "error" not in run}
    print(f"{'recipe':<28}{'validation loss by seed':<36}{'mean':>9}{'against bf16':>14}{'worst seed':>12}"
          f"{'training':>10}")
    for recipe in recipes:
        losses = of(recipe)
        if not losses:
            print(f"{recipe:<28}failed")
            continue
        shared = [seed for seed in losses if seed in base]
        relative = [losses[seed] / base[seed] - 1 for seed in shared]
        mean = statistics.mean(losses[seed] for seed in shared) / statistics.mean(base[seed] for seed in shared) - 1 if shared else 0
        print(f"{recipe:<28}{'  '.join(f'{losses[seed]:.4f}' for seed in sorted(losses)):<36}"
              f"{statistics.mean(losses.values()):>9.4f}{mean:>+14.2%}{max(relative, key=abs, default=0):>+12.2%}"
              f"{max((curve_distance(r, base_runs[r['seed']], steps // 4, steps // 10) for r in runs if r['recipe'] == recipe and r['seed'] in shared), default=0):>10.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--text", nargs="+", required=True, help="text files, in this order")
    parser.add_argument("--config", default=str(BENCH / "workloads" / "110m.json"))
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--vocab", type=int, default=512, help="of the model, and of a tokenizer that is trained")
    parser.add_argument("--tokenizer", default="bytes", help='bytes, a tokenizer folder, or "train"')
    parser.add_argument("--held-out", type=float, default=0.05, help="share of each text, at its end")
    parser.add_argument("--jobs", type=int, default=1, help="runs that share the device at a time")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    args.vocab_size = args.vocab
    args.tokenizer = None if args.tokenizer == "train" else args.tokenizer
    recipes = args.recipes.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        training_texts, held_out_texts = split_texts(args, folder)
        train, count = tokens_of(args, folder, training_texts, "train.npy")
        held_out, held_out_count = tokens_of(args, folder, held_out_texts, "held-out.npy")
        tokens = train, held_out
        print(f"{count:,} training tokens ({args.steps * args.batch * args.length / count:.1f} epochs), "
              f"{held_out_count:,} held out", file=sys.stderr, flush=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            pending = [pool.submit(one_run, args, tokens, folder, recipe, int(seed))
                       for seed in args.seeds.split(",") for recipe in recipes]
            runs = [future.result() for future in pending]
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(runs, indent=1) + "\n")
    print_table(runs, recipes, args.steps)
    if any("error" in run for run in runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
