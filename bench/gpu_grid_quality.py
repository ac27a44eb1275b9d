#!/usr/bin/env python3
"""Cost of the bits of a GGUF file, and what training in its grid recovers (recipe qat_gguf with a frozen copy as teacher).

  bench/gpu_grid_quality.py --model models/smollm2 --train wikitext2-valid.txt --text wikitext2-test.txt --work build/grid

For each scheme: the file quantized without training, by round to nearest and with an importance matrix of 64 x 512 tokens
of the training text, of which the better one counts; and for each rate the file of a run of --steps steps of --batch
sequences of --length tokens. All files are evaluated by `quench eval` on --text, in windows of --length, next to the
model itself: excess is the loss above the model's in nats a token, with its share of that of the file without training;
divergence (nats a token) and equal likeliest tokens are measured against the model. Schemes in --limits are quantized
alone: what files of more bits reach. Texts may be token files with --tokenizer.

--published compares as users of a published QAT checkpoint do: the values that a run computed with, stored in bf16; equal
likeliest tokens of that folder with the run's own file, and with a file quantized from the folder by round to nearest.

Prints a row as soon as it exists, and a Markdown table at the end.
"""
import argparse
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile

from gpu_common import BenchError, add_program_options, program_environment, quench_train, run_program


def quench(args, *arguments):
    return run_program([args.quench, *map(str, arguments)], args.timeout, environment=program_environment(args.quench))


def tokenizer_options(args):
    return ["--tokenizer", args.tokenizer] if args.tokenizer else []


def evaluate(args, model, reference=None):
    result = json.loads(quench(args, "eval", "--model", model, "--reference", reference or args.model, "--data", args.text,
                               "--seq-len", args.length, "--device", args.device, "--json", *tokenizer_options(args)))
    return dict(loss=result["loss"], perplexity=result["token_perplexity"], divergence=result["divergence"]["mean"],
                same_top=result["divergence"]["same_top"])


def quantized(args, folder, scheme, matrix):
    """The row of a file without training."""
    path = folder / f"{scheme}{'-matrix' if matrix else ''}.gguf"
    options = ["--calibration", args.train, "--calibration-samples", 64, "--calibration-seq-len", 512,
               *tokenizer_options(args)] if matrix else []
    if not path.exists():
        quench(args, "quantize", "--model", args.model, "--format", "gguf", "--scheme", scheme, "--output", path, "--device",
               args.device, *options)
    return dict(scheme=scheme, how="matrix" if matrix else "nearest", mb=path.stat().st_size / 1e6, **evaluate(args, path))


def trained(args, folder, scheme, rate):
    """The row of the file of a run."""
    name = f"{scheme}-{rate:g}"
    tokenizer = {"tokenizer": args.tokenizer} if args.tokenizer else {}
    config = dict(model=dict(path=str(args.model)),
                  data=dict(train=[str(args.train)], seq_len=args.length, shuffle=True, **tokenizer),
                  training=dict(steps=args.steps, micro_batch_size=args.batch, global_batch_size=args.batch, max_norm=1.0,
                                dtype=args.dtype, master_dtype="f32", seed=args.seed),
                  optimizer=dict(lr=rate, betas=[0.9, 0.95], weight_decay=0.0),
                  lr_schedule=dict(name="cosine", warmup_steps=args.steps // 20, min_lr_ratio=0.0),
                  recipe=dict(name="qat_gguf", gguf_scheme=scheme), distill=dict(teacher="initial"),
                  export=dict(), checkpoint=dict(enable=False), evaluation=dict(interval=0),
                  metrics=dict(log_every=10, tensorboard=False, progress="off"))
    records, _ = quench_train(args.quench, config, folder / name, args.extra, args.device, args.timeout)
    path = next((folder / name / "run" / "export").glob("*.gguf"))
    kept = folder / f"{name}.gguf"
    shutil.copyfile(path, kept)
    row = dict(scheme=scheme, how=f"{rate:g}", mb=kept.stat().st_size / 1e6, **evaluate(args, kept),
               tokens_per_second=records[-1].get("tokens_per_s"))
    return dict(row, published=published(args, folder, name, scheme)) if args.published else row


def published(args, folder, name, scheme):
    """Files of a run's values: its own, and one quantized from the values in bf16, each next to those."""
    values, again = folder / f"{name}-bf16", folder / f"{name}-again.gguf"
    quench(args, "export", "--model", folder / f"{name}.gguf", "--format", "hf", "--dtype", "bf16", "--output", values)
    quench(args, "quantize", "--model", values, "--format", "gguf", "--scheme", scheme, "--output", again, "--device", args.device)
    return {how: evaluate(args, path, values) for how, path in (("own", folder / f"{name}.gguf"), ("again", again))}


def print_row(row, bf16, untrained):
    excess = row["loss"] - bf16["loss"]
    share = f", {excess / (untrained['loss'] - bf16['loss']):.2f} of the file without training" if untrained else ""
    print(f"{row['scheme']} {row['how']}: {row['mb']:.1f} MB, perplexity {row['perplexity']:.3f}, excess {excess:.4f}{share}, "
          f"divergence {row['divergence']:.4f}, same top {row['same_top']:.2%}", flush=True)
    for how, result in row.get("published", {}).items():
        print(f"  {how} file next to the run's values in bf16: same top {result['same_top']:.2%}, divergence "
              f"{result['divergence']:.5f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--model", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--train", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--text", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--tokenizer", help="default: the model's")
    parser.add_argument("--schemes", default="q2_k,q3_k_s,q4_0")
    parser.add_argument("--limits", default="q4_k_m,q6_k,q8_0")
    parser.add_argument("--rates", default="1e-4,3e-4")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--dtype", default="f32", help="training.dtype")
    parser.add_argument("--published", action="store_true", help="files next to the values of a run in bf16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs that share the device at a time")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    schemes = args.schemes.split(",")
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bf16 = evaluate(args, args.model)
        print(f"the model: perplexity {bf16['perplexity']:.3f}, loss {bf16['loss']:.4f}", flush=True)
        rows, best = [], {}
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            runs = [pool.submit(trained, args, folder, scheme, float(rate))
                    for scheme in schemes for rate in args.rates.split(",") if args.steps]
            for scheme in [*schemes, *filter(None, args.limits.split(","))]:
                both = [quantized(args, folder, scheme, matrix) for matrix in (False, True)]
                best[scheme] = min(both, key=lambda row: row["loss"])
                rows += both
                for row in both:
                    print_row(row, bf16, None)
            for run in concurrent.futures.as_completed(runs):
                try:
                    rows.append(run.result())
                    print_row(rows[-1], bf16, best[rows[-1]["scheme"]])
                except BenchError as error:
                    failed = True
                    print(f"error: {error}", file=sys.stderr, flush=True)
    print(f"\n| file | MB | perplexity ({bf16['perplexity']:.2f}) | excess | of that without training | divergence | equal "
          "likeliest |\n|---|---|---|---|---|---|---|")
    order = {name: at for at, name in enumerate(best)}
    for row in sorted(rows, key=lambda row: order[row["scheme"]]):
        excess, untrained = row["loss"] - bf16["loss"], best[row["scheme"]]["loss"] - bf16["loss"]
        how = {"nearest": "", "matrix": ", matrix"}.get(row["how"], f", trained at {row['how']}")
        print(f"| `{row['scheme']}`{how} | {row['mb']:.1f} | {row['perplexity']:.2f} | {excess:.4f} | {excess / untrained:.2f} | "
              f"{row['divergence']:.4f} | {row['same_top']:.2%} |")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(model=bf16, rows=rows), indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
