#!/usr/bin/env python3
"""Accuracy of a chat model on held-out sums while quench train rewards it for right answers (GRPO), for several seeds.

  bench/grpo_curve.py --model SmolLM2-135M-Instruct --json curve.json
  bench/grpo_curve.py --model SmolLM2-135M-Instruct --device cpu --seeds 1 --jobs 1 --steps 20 --prompts 8

Prompts are "What is A + B?" with A and B of 1 to --largest; --held-out of these sums are never trained on. Full training;
the reward is 1 for an answer whose last number is the sum. Held-out accuracy is that of greedy answers: before, every
--every steps and after the last, printed as soon as it is known. The reward of a step is the accuracy of its samples at
temperature 1, on sums that most steps of the first epoch see for the first time. --jobs runs share the device at a time.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from arithmetic import is_right, sums, write_records
from gpu_common import (BenchError, add_program_options, json_lines, last_error_line, program_environment, run_program)


def config_of(args, seed, lr, train, held_out):
    rows = max(n for n in range(1, args.prompts + 1) if args.prompts % n == 0 and n * args.length <= max(args.micro_tokens, args.length))
    return dict(
        model=dict(path=str(pathlib.Path(args.model).resolve())),
        data=dict(train=[str(train)], seq_len=args.length),
        training=dict(steps=args.steps, micro_batch_size=rows, global_batch_size=args.prompts, seed=seed, threads=args.threads),
        optimizer=dict(lr=lr, betas=[0.9, 0.99], weight_decay=0.0),
        lr_schedule=dict(name="constant", warmup_steps=min(5, args.steps)),
        grpo=dict(num_generations=args.generations, max_completion_length=args.tokens, rewards="numeric_match", log_completions=0),
        checkpoint=dict(enable=False),
        metrics=dict(log_every=1, tensorboard=False),
        evaluation=dict(interval=args.every, prompts=[record["prompt"][0]["content"] for record in held_out], chat_prompts=True,
                        sample_tokens=args.tokens))


def accuracy_before(args, folder, held_out):
    write_records(folder / "held-out.jsonl", [dict(messages=record["prompt"]) for record in held_out])
    command = [args.quench, "generate", "--model", args.model, "--prompts", folder / "held-out.jsonl", "--batch-size", 64,
               "--temperature", 0, "--max-new-tokens", args.tokens, "--device", args.device, "--threads", args.threads]
    texts = {record["index"]: record["text"]
             for record in json_lines(run_program(command, args.timeout, environment=program_environment(args.quench)))}
    return accuracy([texts[i] for i in range(len(held_out))], held_out)


def accuracy(texts, held_out):
    return statistics.mean(is_right(text, record["answer"]) for text, record in zip(texts, held_out, strict=True))


def whole_lines(path):
    text = path.read_text() if path.exists() else ""
    return json_lines(text[:text.rfind("\n") + 1])


class Run:
    """A seed and a rate: a training process, and what its metrics folder shows so far."""

    def __init__(self, args, seed, lr, train, held_out, folder):
        self.args, self.held_out, self.folder = args, held_out, folder
        self.facts, self.name = dict(seed=seed, lr=lr), f"seed {seed}  lr {lr:g}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(config_of(args, seed, lr, train, held_out), indent=1))
        self.curve, self.rewards, self.seconds = {}, [], None

    def read(self):
        records = whole_lines(self.folder / "run" / "metrics" / "metrics.jsonl")
        self.rewards = [record["objective"]["reward"] for record in records]
        texts = {}
        for record in whole_lines(self.folder / "run" / "metrics" / "samples.jsonl"):
            texts.setdefault(record["step"], []).append(record["text"])
        for step, answers in sorted(texts.items()):
            if step not in self.curve and len(answers) == len(self.held_out):
                self.curve[step] = accuracy(answers, self.held_out)
                recent = self.rewards[max(0, step - self.args.every):step]
                reward = f", reward {statistics.mean(recent):.3f}" if recent else ""
                print(f"{self.name}  step {step:>4}  held out {self.curve[step]:.1%}{reward}", flush=True)

    def train(self):
        args, start = self.args, time.monotonic()
        command = [args.quench, "train", self.folder / "run.json", "--device", args.device, f"--run.folder={self.folder / 'run'}",
                   *args.extra]
        with open(self.folder / "log.txt", "w") as log:
            process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log,
                                       env=program_environment(args.quench))
            try:
                while process.poll() is None:
                    time.sleep(0.5)
                    self.read()
                    if time.monotonic() - start > args.timeout:
                        raise BenchError(f"took more than {args.timeout} s; {len(self.rewards)} of {args.steps} steps are done")
            finally:
                process.kill()
                process.wait()
        self.read()
        self.seconds = time.monotonic() - start
        if process.returncode:
            raise BenchError(f"status {process.returncode}: {last_error_line((self.folder / 'log.txt').read_text())}")
        print(f"{self.name}  {len(self.rewards)} steps in {self.seconds:.1f} s", flush=True)


def attempt(run):
    try:
        run.train()
    except BenchError as error:
        print(f"{run.name}  error: {error}", flush=True)
        return dict(**run.facts, curve=run.curve, rewards=run.rewards, error=str(error))
    return dict(**run.facts, curve=run.curve, rewards=run.rewards, seconds=run.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--model", required=True, help="Hugging Face folder of a chat model")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--every", type=int, default=20, help="steps between evaluations")
    parser.add_argument("--largest", type=int, default=20, help="largest number that is added")
    parser.add_argument("--held-out", type=int, default=100, help="sums that are not trained on")
    parser.add_argument("--prompts", type=int, default=16, help="of a step")
    parser.add_argument("--generations", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--tokens", type=int, default=24, help="largest length of a completion")
    parser.add_argument("--length", type=int, default=512, help="tokens of a row, which holds several completions")
    parser.add_argument("--micro-tokens", type=int, default=8192, help="tokens of a micro-batch")
    parser.add_argument("--lr", default="3e-5", help="learning rate, or several, separated by commas")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    train, held_out = sums(args.largest, args.held_out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        write_records(folder / "train.jsonl", train)
        before = accuracy_before(args, folder, held_out)
        print(f"{len(train)} sums to train on, {len(held_out)} held out; before: held out {before:.1%}", flush=True)
        runs = [Run(args, int(seed), float(lr), folder / "train.jsonl", held_out, folder / f"seed-{seed}-lr-{lr}")
                for lr in args.lr.split(",") for seed in args.seeds.split(",")]
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(attempt, runs))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(before=before, runs=results), indent=1) + "\n")
    for lr in map(float, args.lr.split(",")):
        curves = [result["curve"] for result in results if result["lr"] == lr and result["curve"]]
        after = [curve[max(curve)] for curve in curves]
        if after:
            print(f"lr {lr:g}: held out {before:.1%} before, {statistics.mean(after):.1%} after (mean of {len(after)} seeds: "
                  f"{', '.join(f'{value:.1%}' for value in after)})")
    if any("error" in result for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
