#!/usr/bin/env python3
"""Cost of few bits, and what training for them recovers: a model of 100 million parameters is trained on real text, then
fine-tuned in bf16, under quantization-aware training (QAT), under QAT with a teacher (QAD), and with adapters; and the
result of each optimizer on the same run.

  bench/gpu_qat_quality.py --text corpus/*.txt.gz --work build/qat-quality --json qat.json
  bench/gpu_qat_quality.py --text corpus/*.txt.gz --config bench/workloads/gemma3-100m.json --tokenizer bytes --vocab-size 264

The last --held-out share of every text is the validation text; tokens are those of --tokenizer, or of a BPE trained on
the rest. A first training of --pretrain-steps makes the model, which is kept in --work and used again by later calls with
the same settings. From it, for each seed:

  baseline   --tune-steps of bf16, evaluated as it is, and with its layers quantized as each scheme says (PTQ)
  qat        as many steps under the scheme's recipe, evaluated under it
  qad        as qat, distilled from --teacher: the model of the first training, or the fine-tuned baseline
  lora       baseline and qat with adapters of rank --rank over the frozen model; the merged weight is quantized
  lora_qad   as lora, distilled from the base without adapters, or from the fine-tuned baseline with adapters

With --start baseline the fine-tuned model is the finished one, which the others start from and, with a teacher, are
distilled from whatever --teacher says (the base without adapters, in lora_qad), and recovery is against it, of adapters too.
It takes --finish-steps of bf16.

Schemes that end in _learned train the scales (recipe.learned_scales) and are evaluated as exported; their PTQ is that of
the scheme without.

Perplexities are those of the held-out tokens in windows of --length. Recovery is (qat - ptq) / (baseline - ptq), of the
run with adapters against the baseline with adapters; it is not told where quantization costs less than 0.1%, which is
less than the seeds do. --stages chooses: qat, qad, lora, lora_qad, optimizers, or pretrain for the first model alone.
"""
import argparse
import concurrent.futures
import gzip
import json
import pathlib
import statistics
import sys
import tempfile

from gpu_common import BENCH, BenchError, add_program_options, load_run_config, program_environment, quench_train, run_program
from gpu_loss_curve import make_tokens

INTEGER_WEIGHTS = ("qat_int4_weight_only", "qat_intx_weight_only")
# name: recipe, and keys of the section recipe, which `quench eval` has as options
SCHEMES = {
    "int4_g32": ("qat_int4_weight_only", {"group_size": 32}),
    "int4_g128": ("qat_int4_weight_only", {"group_size": 128}),
    "int8dyn_int4_g32": ("qat_int8dyn_int4", {"group_size": 32}),
    "int3_g32": ("qat_intx_weight_only", {"group_size": 32, "weight_bits": 3}),
    "int2_g32": ("qat_intx_weight_only", {"group_size": 32, "weight_bits": 2}),
    "mxfp4": ("qat_mxfp4", {}),
    "mxfp4_weights": ("qat_mxfp4_weight_only", {}),
    "nvfp4": ("qat_nvfp4", {}),
    "nvfp4_weights": ("qat_nvfp4_weight_only", {}),
    "float8": ("qat_float8", {}),
}
LEARNED = "_learned"
LEARNED_SCHEMES = [name + LEARNED for name, (recipe, _) in SCHEMES.items() if recipe in INTEGER_WEIGHTS]
# name: keys of the section optimizer beside AdamW's rate
OPTIMIZERS = {
    "adamw": {},
    "adamw_8bit": {},
    "adamw_4bit": {},
    "adamw_fp8": {},
    "muon": {},
}
LOG_EVERY = 10
# Stage: with adapters, with a teacher.
KINDS = {"qat": (False, False), "qad": (False, True), "lora": (True, False), "lora_qad": (True, True)}


def read_text(path):
    data = pathlib.Path(path).read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def split_texts(args, folder):
    """The beginning and the end of every text, cut at line ends: two files."""
    parts = [b"", b""]
    for name in args.text:
        text = read_text(name)
        cut = text.rfind(b"\n", 0, int(len(text) * (1 - args.held_out))) + 1
        parts[0] += text[:cut]
        parts[1] += text[cut:]
    paths = []
    for name, part in zip(("train", "held-out"), parts):
        paths.append(folder / f"{name}.txt")
        paths[-1].write_bytes(part)
    return paths


def tokenizer_of(args, folder):
    return args.tokenizer or str(folder / "tokenizer")


def tokens_of(args, folder, text, name):
    args.text = [text]
    path, count = make_tokens(args, folder, args.vocab_size)
    return path.rename(folder / name), count


def base_config(args, tokens):
    config = load_run_config(args.config)
    config["model"].update(vocab_size=args.vocab_size, num_hidden_layers=args.layers)
    config["data"].update(train=[str(tokens[0])], validation=[str(tokens[1])], seq_len=args.length, shuffle=True)
    config["training"].update(micro_batch_size=args.batch, global_batch_size=args.batch, dtype="bf16", master_dtype="f32")
    config["metrics"].update(log_every=LOG_EVERY, health_every=0)
    config["checkpoint"] = dict(enable=False)
    config["evaluation"] = dict(interval=0)
    return config


def pretrain(args, tokens, folder):
    """The model folder that everything starts from."""
    target, settings = folder / "model", dict(steps=args.pretrain_steps, lr=args.lr, batch=args.batch, length=args.length,
                                              layers=args.layers, config=args.config, held_out=args.held_out,
                                              decay=args.pretrain_min_lr_ratio, vocab_size=args.vocab_size,
                                              tokenizer=args.tokenizer, text=[str(t) for t in args.names])
    mark = folder / "pretrained.json"
    if mark.exists() and json.loads(mark.read_text())["settings"] == settings:
        return target, json.loads(mark.read_text())["loss"]
    config = base_config(args, tokens)
    config["training"].update(steps=args.pretrain_steps, seed=0)  # batches unlike those of the seeds
    config["optimizer"]["lr"] = args.lr
    config["lr_schedule"] = dict(name="cosine", warmup_steps=args.pretrain_steps // 20,
                                 min_lr_ratio=args.pretrain_min_lr_ratio)
    config["export"] = dict(format="hf", folder=str(target), overwrite=True)
    config["evaluation"] = dict(interval=args.pretrain_steps, steps=0)
    _, evaluations = quench_train(args.quench, config, folder / "pretraining", args.extra, args.device, args.timeout)
    loss = evaluations[-1]["values"]["loss"]
    mark.write_text(json.dumps(dict(settings=settings, loss=loss)))
    return target, loss


def scheme_of(name):
    """Recipe, keys of the section recipe, and whether scales are learned."""
    plain = name.removesuffix(LEARNED)
    return *SCHEMES[plain], plain != name


def tune(args, tokens, folder, model, name, seed, recipe=None, keys=None, lora=False, teacher=None, learned=False):
    """The model folder of a fine-tuning, adapters merged, or with learned scales the quantized one. teacher: members of
    section distill. Without a recipe and adapters, with --start baseline, the finished model."""
    config = base_config(args, tokens)
    config["model"] = {"path": str(model)}
    config["data"]["tokenizer"] = tokenizer_of(args, folder)
    steps = args.finish_steps if args.start == "baseline" and not recipe else args.tune_steps
    config["training"].update(steps=steps, seed=seed)
    config["optimizer"].update(lr=args.lora_lr if lora else args.tune_lr,
                               weight_decay=0.0 if lora or teacher is not None else args.tune_weight_decay)
    config["lr_schedule"] = dict(name="cosine", warmup_steps=steps // 20, min_lr_ratio=args.tune_min_lr_ratio)
    if recipe:
        config["recipe"] = dict(name=recipe, **keys, **({"learned_scales": True} if learned else {}))
    if lora:
        config["lora"] = dict(rank=args.rank, alpha=2 * args.rank)
    if teacher is not None:
        config["distill"] = teacher
        config["optimizer"]["lr"] *= args.qad_lr_factor
    config["export"] = dict(format="compressed-tensors" if learned else "hf")
    run = folder / f"{name}-{seed}"
    quench_train(args.quench, config, run, args.extra, args.device, args.timeout)
    return run / "run" / "export"


def perplexities(args, tokens, folder, *options):
    """By role."""
    output = run_program([args.quench, "eval", *options, "--data", tokens[1], "--tokenizer", tokenizer_of(args, folder),
                          "--seq-len", args.length, "--device", args.device, "--json"], args.timeout,
                         environment=program_environment(args.quench))
    results = json.loads(output)
    return {result.get("role", "model"): result["token_perplexity"] for result in (results if type(results) is list else [results])}


def compare(args, tokens, folder, baseline, model, recipe, keys, learned):
    """Perplexities of a baseline, the baseline under the recipe and a model under it, or as it was exported."""
    options = [part for key, value in keys.items() for part in (f"--{key.replace('_', '-')}", value)]
    by_role = perplexities(args, tokens, folder, "--baseline", baseline, "--model", baseline if learned else model,
                           "--recipe", recipe, *options)
    trained = perplexities(args, tokens, folder, "--model", model)["model"] if learned else by_role["model"]
    return dict(baseline=by_role["baseline"], ptq=by_role["ptq"], qat=trained,
                recovery=recovery(by_role["baseline"], by_role["ptq"], trained))


def recovery(baseline, ptq, model):
    """None where quantization costs next to nothing."""
    return (model - ptq) / (baseline - ptq) if ptq > 1.001 * baseline else None


def percent(value):
    return "n/a" if value is None else f"{value:.0%}"


def one_seed(args, tokens, folder, model, seed, stages, pool):
    """The rows of one seed: {kind, scheme, seed, baseline, ptq, qat, recovery} or {..., error}."""
    kinds = [kind for kind in KINDS if kind in stages]
    baselines = {lora: pool.submit(tune, args, tokens, folder, model, "lora-bf16" if lora else "qat-bf16", seed, lora=lora)
                 for lora in ([False] if args.start == "baseline" else sorted({KINDS[kind][0] for kind in kinds}))}

    def row(kind, scheme):
        recipe, keys, learned = scheme_of(scheme)
        lora, distilled = KINDS[kind]
        one = dict(kind=kind, scheme=scheme, seed=seed)
        try:
            finished = args.start == "baseline"
            baseline = baselines[lora and not finished]
            teacher = dict(ratio=args.ratio, loss=args.divergence, temperature=args.temperature) if distilled else None
            if distilled and args.hidden_weight:
                teacher["hidden"] = dict(weight=args.hidden_weight, loss="normalized_mse")
            if distilled and (args.teacher == "baseline" or (finished and not lora)):
                teacher["teacher"] = str(baseline.result())
            start = baseline.result() if finished else model
            tuned = tune(args, tokens, folder, start, f"{kind}-{scheme}", seed, recipe, keys, lora, teacher, learned)
            one.update(compare(args, tokens, folder, baseline.result(), tuned, recipe, keys, learned))
            print(f"  {kind} {scheme}, seed {seed}: {one['baseline']:.4f} / {one['ptq']:.4f} / {one['qat']:.4f}, "
                  f"recovered {percent(one['recovery'])}", file=sys.stderr, flush=True)
        except BenchError as error:
            one["error"] = str(error)
            print(f"  {kind} {scheme}, seed {seed}: {error}", file=sys.stderr, flush=True)
        return one

    return [pool.submit(row, kind, scheme)
            for kind in kinds for scheme in (args.lora_schemes if KINDS[kind][0] else args.schemes).split(",")]


def one_optimizer(args, tokens, folder, name, seed):
    config = base_config(args, tokens)
    config["training"].update(steps=args.optimizer_steps, seed=seed)
    config["optimizer"].update(name=name, lr=args.muon_lr if name == "muon" else args.lr, **OPTIMIZERS[name])
    config["lr_schedule"] = dict(name="cosine", warmup_steps=args.optimizer_steps // 20, min_lr_ratio=0.1)
    config["evaluation"] = dict(interval=args.optimizer_steps, steps=0)
    one = dict(optimizer=name, seed=seed)
    try:
        records, evaluations = quench_train(args.quench, config, folder / f"optimizer-{name}-{seed}", args.extra, args.device,
                                            args.timeout)
        one.update(loss=evaluations[-1]["values"]["loss"], training=[[r["step"], r["loss"]] for r in records])
        print(f"  {name}, seed {seed}: {one['loss']:.4f}", file=sys.stderr, flush=True)
    except BenchError as error:
        one["error"] = str(error)
        print(f"  {name}, seed {seed}: {error}", file=sys.stderr, flush=True)
    return one


def print_tables(rows, optimizers):
    done = [row for row in rows if "error" not in row]
    if done:
        print(f"{'':<10}{'scheme':<20}{'bf16':>9}{'PTQ':>9}{'trained':>9}{'lost':>8}{'recovered':>11}{'worst':>8}{'seeds':>7}")
    for kind in KINDS:
        for scheme in [*SCHEMES, *LEARNED_SCHEMES]:
            of = [row for row in done if row["kind"] == kind and row["scheme"] == scheme]
            if not of:
                continue
            mean = lambda key: statistics.mean(row[key] for row in of)
            recovered = recovery(mean("baseline"), mean("ptq"), mean("qat"))
            known = [row["recovery"] for row in of if row["recovery"] is not None]
            print(f"{kind:<10}{scheme:<20}{mean('baseline'):>9.4f}{mean('ptq'):>9.4f}{mean('qat'):>9.4f}"
                  f"{mean('ptq') / mean('baseline') - 1:>8.2%}{percent(recovered):>11}{percent(min(known, default=None)):>8}"
                  f"{len(of):>7}")
    done = [run for run in optimizers if "error" not in run]
    base = [run["loss"] for run in done if run["optimizer"] == "adamw"]
    if done:
        print(f"{'optimizer':<16}{'validation loss':>16}{'against adamw':>15}{'seeds':>7}")
    for name in OPTIMIZERS:
        losses = [run["loss"] for run in done if run["optimizer"] == name]
        if losses:
            against = f"{statistics.mean(losses) / statistics.mean(base) - 1:+.2%}" if base else "n/a"
            print(f"{name:<16}{statistics.mean(losses):>16.4f}{against:>15}{len(losses):>7}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--text", nargs="+", required=True, help="text files, which may be gzipped")
    parser.add_argument("--tokenizer", help="tokenizer file or folder, or bytes; default: a BPE trained on the text")
    parser.add_argument("--vocab-size", type=int, default=8192, help="of the model, and of the BPE that is trained")
    parser.add_argument("--config", help="run config with the model's sizes; default: those of bench/workloads/110m.json with "
                        "16 layers, 126 million parameters with the default vocabulary")
    parser.add_argument("--layers", type=int, help="default: those of --config")
    parser.add_argument("--stages", default="qat,lora")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--lora-schemes", default="int4_g32,int3_g32")
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--pretrain-steps", type=int, default=4000)
    parser.add_argument("--pretrain-min-lr-ratio", type=float, default=0.1, help="rate at the end, as a share of the peak")
    parser.add_argument("--tune-steps", type=int, default=400)
    parser.add_argument("--optimizer-steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--muon-lr", type=float, default=6e-4)
    parser.add_argument("--finish-steps", type=int, help="bf16 steps of the finished model; default: --tune-steps")
    parser.add_argument("--tune-lr", type=float, default=1e-4)
    parser.add_argument("--tune-min-lr-ratio", type=float, default=0.1, help="rate at the end, as a share of the peak")
    parser.add_argument("--tune-weight-decay", type=float, default=0.1, help="of bf16 and QAT; 0 with a teacher or adapters")
    parser.add_argument("--lora-lr", type=float, default=1e-3)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--teacher", default="initial", choices=("initial", "baseline"), help="of qad and lora_qad")
    parser.add_argument("--start", default="initial", choices=("initial", "baseline"), help="model that training starts from")
    parser.add_argument("--ratio", type=float, default=1.0, help="share of the divergence in the loss of qad")
    parser.add_argument("--divergence", default="forward_kl")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--hidden-weight", type=float, default=0.0, help="of the loss on hidden states (normalized_mse) in qad")
    parser.add_argument("--qad-lr-factor", type=float, default=1.0, help="learning rate of qad over that of qat")
    parser.add_argument("--held-out", type=float, default=0.02, help="share of each text, at its end")
    parser.add_argument("--jobs", type=int, default=1, help="runs that share the device at a time")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    args.names = list(args.text)
    args.finish_steps = args.finish_steps or args.tune_steps
    if not args.config:
        args.config, args.layers = str(BENCH / "workloads" / "110m.json"), args.layers or 16
    args.layers = args.layers or load_run_config(args.config)["model"]["num_hidden_layers"]
    stages, seeds = args.stages.split(","), [int(seed) for seed in args.seeds.split(",")]
    rows, optimizers = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        texts = split_texts(args, folder)
        train, count = tokens_of(args, folder, texts[0], "train.npy")
        held_out, held_out_count = tokens_of(args, folder, texts[1], "held-out.npy")
        tokens = train, held_out
        print(f"{count:,} training tokens, {held_out_count:,} held out", file=sys.stderr, flush=True)
        if any(kind in stages for kind in [*KINDS, "pretrain"]):
            model, loss = pretrain(args, tokens, folder)
            epochs = args.pretrain_steps * args.batch * args.length / count
            print(f"first training: {epochs:.1f} epochs, validation loss {loss:.4f}", file=sys.stderr, flush=True)
            # Rows wait for their baselines, which are begun before them.
            with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
                pending = [future for seed in seeds for future in one_seed(args, tokens, folder, model, seed, stages, pool)]
                rows = [future.result() for future in pending]
        if "optimizers" in stages:
            with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
                pending = [pool.submit(one_optimizer, args, tokens, folder, name, seed)
                           for seed in seeds for name in args.optimizers.split(",")]
                optimizers = [future.result() for future in pending]
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(start=args.start, rows=rows, optimizers=optimizers), indent=1) + "\n")
    print_tables(rows, optimizers)
    if any("error" in one for one in rows + optimizers):
        sys.exit(1)


if __name__ == "__main__":
    main()
