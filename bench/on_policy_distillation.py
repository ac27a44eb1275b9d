#!/usr/bin/env python3
"""Distillation on the student's own answers beside distillation on given text: the same student, teacher, prompts and steps.

  bench/on_policy_distillation.py --teacher SmolLM2-135M-Instruct --text valid.txt --held-out test.txt --json distilled.json
  bench/on_policy_distillation.py --teacher SmolLM2-135M-Instruct --keep-every 2 --warmup-steps 300 ...

The student is --student, or else the teacher's own weights, trained under a recipe of few bits (--bits, --group-size; 0 bits:
bf16), after --keep-every N with each N-th decoder layer alone. Texts are cut into prompts of --prompt-words words with the
--answer-words after them. --warmup-steps of distillation on the texts come before all methods, and are those of one run.

Printed for each method, on held-out texts: the cross-entropy of the given answers in excess of the teacher's, the divergence
KL(teacher | student) at them, and KL(student | teacher) at answers that the student samples: what it says that the teacher
would not.
"""
import argparse
import concurrent.futures
import json
import pathlib
import sys
import tempfile

from gpu_common import BenchError, add_program_options, quench_train

METHODS = {
    "given_forward": dict(on_policy=0.0, loss="forward_kl"),
    "given_reverse": dict(on_policy=0.0, loss="reverse_kl"),
    "own_reverse": dict(on_policy=1.0, loss="reverse_kl"),
    "own_forward": dict(on_policy=1.0, loss="forward_kl"),
    "half_forward": dict(on_policy=0.5, loss="forward_kl"),
    "half_reverse": dict(on_policy=0.5, loss="reverse_kl"),
}

NO_RATE = 1e-30  # learning rate that changes no weight


def write_texts(source, path, prompt_words, answer_words, most):
    """Records {"prompt", "completion"} of one text after another; their number, at most `most`."""
    words = pathlib.Path(source).read_text().split()
    size = prompt_words + answer_words
    count = min(len(words) // size, most)
    if count == 0:
        raise BenchError(f"{source} has {len(words)} words, fewer than a prompt and an answer of {size}")
    with open(path, "w") as file:
        for i in range(count):
            text = words[i * size:(i + 1) * size]
            record = dict(prompt=" ".join(text[:prompt_words]), completion=" " + " ".join(text[prompt_words:]))
            file.write(json.dumps(record) + "\n")
    return count


def write_shorter(source, folder, every):
    """A model folder with each `every`-th decoder layer of `source`, beginning with its first."""
    import shutil

    from safetensors import safe_open
    from safetensors.torch import save_file

    source = pathlib.Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*"):
        if path.suffix in (".json", ".jinja", ".model") and not path.name.endswith(".index.json"):
            shutil.copy(path, folder)
    config = json.loads((source / "config.json").read_text())
    kept = range(0, config["num_hidden_layers"], every)
    config["num_hidden_layers"] = len(kept)
    if "layer_types" in config:
        config["layer_types"] = [config["layer_types"][layer] for layer in kept]
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tensors = {}
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                parts = name.split(".")
                if parts[:2] == ["model", "layers"]:
                    if int(parts[2]) % every:
                        continue
                    parts[2] = str(int(parts[2]) // every)
                tensors[".".join(parts)] = file.get_tensor(name)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.train, self.held_out = folder / "train.jsonl", folder / "held-out.jsonl"
        counts = [write_texts(args.text, self.train, args.prompt_words, args.answer_words, args.prompts),
                  write_texts(args.held_out, self.held_out, args.prompt_words, args.answer_words, args.validation)]
        print(f"{counts[0]} prompts to train on, {counts[1]} held out", flush=True)

    def config(self, model, data, steps, lr, **sections):
        args = self.args
        config = dict(
            model=dict(path=str(pathlib.Path(model).resolve())),
            data=dict(train=[str(data)], seq_len=args.length, multipack=True, on_long="drop"),
            training=dict(steps=steps, micro_batch_size=args.micro_batch, global_batch_size=args.batch, seed=args.seed,
                          threads=args.threads),
            optimizer=dict(lr=lr, betas=[0.9, 0.95], weight_decay=0.0),
            lr_schedule=dict(name="cosine", warmup_steps=min(10, steps // 2), min_lr_ratio=0.0),
            checkpoint=dict(enable=False), metrics=dict(log_every=1, tensorboard=False), **sections)
        if args.bits:
            config["recipe"] = dict(name="qat_intx_weight_only", weight_bits=args.bits, group_size=args.group_size)
        return config

    def distillation(self, **values):
        teacher = str(pathlib.Path(self.args.teacher).resolve())
        own = dict(max_completion_length=self.args.tokens, log_completions=0) if values["on_policy"] else {}
        return dict(teacher=teacher, **values, **own)

    def run(self, name, config, extra=()):
        return quench_train(self.args.quench, config, self.folder / name, [*extra, *self.args.extra], self.args.device,
                            self.args.timeout)

    def cross_entropy(self, name, model, bits):
        """Cross-entropy of held-out answers, by a step that changes nothing."""
        config = self.config(model, self.train, 1, NO_RATE, evaluation=dict(interval=1, steps=0))
        config["data"]["validation"] = [str(self.held_out)]
        if not bits:
            config.pop("recipe", None)
        return self.run(name, config)[1][-1]["values"]["loss"]

    def divergence(self, name, model, on_policy, loss):
        """On held-out texts, by steps that change nothing."""
        config = self.config(model, self.held_out, self.args.divergence_steps, NO_RATE,
                             distill=self.distillation(on_policy=on_policy, loss=loss))
        records, _ = self.run(name, config)
        values = [record["objective"]["divergence"] for record in records]
        return sum(values) / len(values)

    def quality(self, name, model):
        return dict(cross_entropy=self.cross_entropy(f"{name}-loss", model, self.args.bits),
                    given=self.divergence(f"{name}-given", model, 0.0, "forward_kl"),
                    own=self.divergence(f"{name}-own", model, 1.0, "reverse_kl"))

    def distill(self, name, model, steps, method):
        config = self.config(model, self.train, steps, self.args.lr, distill=self.distillation(**METHODS[method]))
        # Weights as they are trained, not in the grid of the recipe: the next run applies it again.
        config["export"] = dict(format="hf")
        records, _ = self.run(name, config)
        if len(records) < steps:
            raise BenchError(f"{len(records)} of {steps} steps are in metrics.jsonl")
        return self.folder / name / "run" / "export", records

    def method(self, name, model):
        try:
            trained, records = self.distill(name, model, self.args.steps, name)
            seconds = records[-1]["time"] - records[0]["time"]
            return dict(self.quality(name, trained), seconds=seconds)
        except BenchError as error:
            return dict(error=str(error))


def show(name, row, teacher):
    if "error" in row:
        print(f"{name:<16}{row['error']}", flush=True)
        return
    seconds = f"{row['seconds']:>10.1f}" if "seconds" in row else ""
    print(f"{name:<16}{row['cross_entropy'] - teacher:>18.4f}{row['given']:>16.4f}{row['own']:>16.4f}{seconds}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--teacher", required=True, help="Hugging Face folder")
    parser.add_argument("--student", help="Hugging Face folder of the same vocabulary; default: the teacher")
    parser.add_argument("--keep-every", type=int, default=1, help="decoder layers of the student that are kept: each N-th")
    parser.add_argument("--bits", type=int, default=3, help="of the student's weights; 0: bf16")
    parser.add_argument("--group-size", type=int, default=32)
    parser.add_argument("--text", required=True, help="text file to train on")
    parser.add_argument("--held-out", required=True, help="text file")
    parser.add_argument("--methods", default="given_forward,given_reverse,own_reverse,half_forward", help=f"of {', '.join(METHODS)}")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup-steps", type=int, default=0)
    parser.add_argument("--divergence-steps", type=int, default=6, help="steps over held-out texts that a divergence is a mean of")
    parser.add_argument("--prompt-words", type=int, default=32)
    parser.add_argument("--answer-words", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=1 << 30, help="most texts to train on")
    parser.add_argument("--validation", type=int, default=256, help="most held-out texts")
    parser.add_argument("--tokens", type=int, default=64, help="largest length of an answer that the student samples")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=32, help="sequences of a step")
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4, help="methods at a time")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    methods = args.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"--methods: {', '.join(unknown)} is none of {', '.join(METHODS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(args, folder)
        student = pathlib.Path(args.student or args.teacher)
        if args.keep_every > 1:
            write_shorter(student, folder / "shorter", args.keep_every)
            student = folder / "shorter"
        teacher = bench.cross_entropy("teacher", args.teacher, 0)
        print(f"teacher's cross-entropy of given answers: {teacher:.4f}\n", flush=True)
        if args.warmup_steps:
            student, _ = bench.distill("warmup", student, args.warmup_steps, "given_forward")
        print(f"{'method':<16}{'excess of teacher':>18}{'KL(t|s) given':>16}{'KL(s|t) own':>16}{'seconds':>10}", flush=True)
        rows = {"start": bench.quality("start", student)}
        show("start", rows["start"], teacher)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            pending = {pool.submit(bench.method, name, student): name for name in methods}
            for future in concurrent.futures.as_completed(pending):
                rows[pending[future]] = future.result()
                show(pending[future], future.result(), teacher)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(teacher=teacher, rows=rows), indent=1) + "\n")
    if any("error" in row for row in rows.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
