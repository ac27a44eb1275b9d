#!/usr/bin/env python3
"""A real chat model (SmolLM2-135M-Instruct as GGUF) through the program and its readers: logits, perplexity and answers of the
file, LoRA and LoRA + QAT on 600 chats, exports and their answers.

Usage: check_real_model.py QUENCH FOLDER FILE    FILE is the GGUF file; everything is written to FOLDER/real. Needs torch,
                                                 transformers, compressed-tensors, gguf, xllamacpp, safetensors
       check_real_model.py --vllm QUENCH FOLDER  then, in vLLM's environment: its answers of the same exports
Prints a line for each comparison and exits 1 when one fails.
"""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, "scripts")
import date_chats
import numpy as np
from safetensors.numpy import load_file, save_file

WITH_VLLM = sys.argv[1] == "--vllm"
QUENCH, FOLDER = sys.argv[1 + WITH_VLLM], pathlib.Path(sys.argv[2 + WITH_VLLM]).resolve() / "real"
WINDOW = 512  # tokens of perplexity
ANSWERS = 12  # unseen dates asked in other programs
NEW = 16
LEAST_RIGHT = 48  # of the 60 unseen dates, after training
NEAR = 0.5  # difference of log-probabilities that rounding of inputs or of bf16 may turn around
CHATS = ["What is the capital of France?", "Name three colors.", "Write one sentence about the sea.", "What is 2 + 2?",
         "Who wrote Hamlet?"]
CHAT_TOKENS = 32
RUN = {
    "data": {"train": ["dates.jsonl"], "validation": ["unseen.jsonl"], "seq_len": 80, "packing": False},
    "training": {"steps": 40, "micro_batch_size": 8, "global_batch_size": 8},
    "optimizer": {"lr": 5e-4, "weight_decay": 0},
    "lr_schedule": {"warmup_steps": 5},
    "lora": {"rank": 16, "alpha": 32},
    "evaluation": {"interval": 40},
}
RUNS = {"lora": {}, "qat": {"recipe": {"name": "qat_int4_weight_only"}}}
# Exports: the run, the options, and the programs that answer with them.
EXPORTS = {
    "lora-hf": ("lora", ["--format", "hf"], ["Transformers", "vLLM"]),
    "lora-int4": ("lora", ["--format", "compressed-tensors", "--scheme", "int4_weight_only_g32"], ["Transformers", "vLLM"]),
    "qat-int4": ("qat", ["--format", "compressed-tensors", "--scheme", "int4_weight_only_g32"], ["Transformers", "vLLM"]),
    "lora-q8_0": ("lora", ["--format", "gguf", "--scheme", "q8_0"], ["llama.cpp"]),
    "lora-q4_0": ("lora", ["--format", "gguf", "--scheme", "q4_0"], ["llama.cpp"]),
    "qat-gguf": ("qat", ["--format", "gguf", "--scheme", "int4_weight_only_g32"], ["llama.cpp"]),
}
failures = 0


def say(good, text):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True, cwd=FOLDER)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def own_logits(model, ids):
    save_file({"input_ids": np.array([ids], dtype=np.int64)}, FOLDER / "ids.safetensors")
    quench("forward", "--model", model, "--input", "ids.safetensors", "--output", "logits.safetensors", "--overwrite",
           "--device", "cpu", "--dtype", "f32")
    return load_file(FOLDER / "logits.safetensors")["logits"][0]


def own_answers(model, chats, new):
    """Greedy ids of answers to the first message of each chat."""
    (FOLDER / "prompts.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": chat}]}) + "\n" for chat in chats))
    lines = quench("generate", "--model", model, "--prompts", "prompts.jsonl", "--max-new-tokens", new, "--batch-size",
                   20, "--device", "cpu", "--dtype", "f32").splitlines()
    return [json.loads(line) for line in lines]


def prompt_ids(tokenizer, chat):
    return tokenizer.apply_chat_template([{"role": "user", "content": chat}], add_generation_prompt=True,
                                         return_dict=True)["input_ids"]


def transformers_answers(model, prompts, new):
    import torch

    answers = []
    for ids in prompts:
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), max_new_tokens=new, do_sample=False)
        answers.append(out[0, len(ids):].tolist())
    return answers


def perplexity(model, ids, prefix):
    """Rolling windows of WINDOW tokens, each token once, as lm-evaluation-harness makes them."""
    import torch

    total, stream = 0.0, [prefix, *ids]
    for first in range(0, len(ids), WINDOW):
        last = min(first + WINDOW, len(ids))
        begin = max(0, last - WINDOW)  # the last window reaches back
        with torch.no_grad():
            logits = model(torch.tensor([stream[begin:last]])).logits[0].numpy()
        chosen = log_softmax(logits)[np.arange(last - begin), ids[begin:last]]
        total -= chosen[first - begin:].sum()
    return float(np.exp(total / len(ids)))


def compare(what, program, model, prompts, ours, theirs):
    """Greedy ids of a program beside ours. Where two answers part, the program's token must be nearly as likely as ours."""
    lost = 0.0
    for prompt, own, other in zip(prompts, ours, theirs, strict=True):
        apart = next((i for i, (a, b) in enumerate(zip(own, other)) if a != b), None)
        if apart is not None:
            last = log_softmax(own_logits(model, [*prompt, *own[:apart]])[-1])
            lost = max(lost, float(last[own[apart]] - last[other[apart]]))
    equal = sum(own == other for own, other in zip(ours, theirs))
    say(equal >= len(ours) // 2 and lost < NEAR,
        f"{what}: {equal} of {len(ours)} are those of {program}" + (f"; the others part at tokens that are {lost:.2f} less likely" if lost else ""))


def check_file(file):
    """The GGUF file itself beside Transformers, which dequantizes it, and llama.cpp, which rounds inputs to 8 bits."""
    import torch
    from llama_server import continuations
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    text = pathlib.Path("docs/guide/tour.md").read_text()[:6000]
    (FOLDER / "text.txt").write_text(text)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    shown = json.loads(quench("tokenize", "show", "--tokenizer", file, "--json", text))
    say([token["id"] for token in shown["tokens"]] == ids, f"{len(ids)} ids of its tokenizer are Transformers'")

    ours = own_logits(file, ids[:WINDOW])
    with torch.no_grad():
        theirs = model(torch.tensor([ids[:WINDOW]])).logits[0].numpy()
    apart = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    top = float((ours.argmax(-1) == theirs.argmax(-1)).mean())
    say(apart < 1e-4 and top == 1, f"logits differ from Transformers' by {apart:.1e}, {top:.1%} of the likeliest tokens are equal")

    result = json.loads(quench("eval", "--model", file, "--data", "text.txt", "--seq-len", WINDOW, "--dtype", "f32",
                               "--device", "cpu", "--json"))
    own, other = find(result, "token_perplexity"), perplexity(model, ids, tokenizer.bos_token_id)
    say(abs(own / other - 1) < 1e-4, f"rolling perplexity {own:.4f}, Transformers' {other:.4f}")

    prompts = [prompt_ids(tokenizer, chat) for chat in CHATS]
    answers = own_answers(file, CHATS, CHAT_TOKENS)
    own = [answer["tokens"] for answer in answers]
    say(own == transformers_answers(model, prompts, CHAT_TOKENS),
        f"greedy answers to {len(CHATS)} questions are Transformers' (\"{answers[0]['text']}\")")
    compare("answers to the same", "llama.cpp", file, prompts, own,
            [tokens for tokens, _ in continuations(file, prompts, CHAT_TOKENS, context=WINDOW, threads=2)])
    lengths = list(range(16, 272, 16))
    ours = log_softmax(ours)
    off, equal = [], 0
    for length, (_, likeliest) in zip(lengths, continuations(file, [ids[:length] for length in lengths], 1, context=WINDOW,
                                                             threads=2, likeliest=10)):
        off += [abs(entry["logprob"] - ours[length - 1][entry["id"]]) for entry in likeliest]
        equal += likeliest[0]["id"] == int(ours[length - 1].argmax())
    say(np.mean(off) < 0.2 and equal >= len(lengths) - 1,
        f"{equal} of {len(lengths)} likeliest tokens in a text are llama.cpp's; log-probabilities of its likeliest 10 differ by "
        f"{np.mean(off):.3f} on average")


def find(result, key):
    """First value of the key in nested JSON."""
    if isinstance(result, dict):
        if key in result:
            return result[key]
        result = list(result.values())
    return next((found for part in result if isinstance(part, (dict, list)) and (found := find(part, key)) is not None),
                None)


def losses_of(run):
    lines = [json.loads(line) for line in (FOLDER / run / "metrics" / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def right_of(model):
    """Right answers to the unseen questions, and the ids of all answers."""
    answers = own_answers(model, QUESTIONS, NEW)
    return date_chats.right_answers(FOLDER, [answer["text"] for answer in answers]), [answer["tokens"] for answer in answers]


def check_runs(file):
    right, _ = right_of(file)
    say(right <= 6, f"before training {right} of {len(QUESTIONS)} unseen dates are right")
    for name, more in RUNS.items():
        config = {"model": {"path": str(file)}, **RUN, **more, "run": {"folder": name}}
        (FOLDER / f"{name}.json").write_text(json.dumps(config))
        quench("train", f"{name}.json", "--device", "cpu")
        losses = losses_of(name)
        right, _ = right_of(name)
        say(right >= LEAST_RIGHT,
            f"{name}: loss {losses[0]:.3f} to {losses[-1]:.4f} in {RUN['training']['steps']} steps, {right} of {len(QUESTIONS)} right")


def check_exports():
    import torch
    from llama_server import continuations
    from transformers import AutoModelForCausalLM, AutoTokenizer

    recorded = {}
    for name, (run, options, programs) in EXPORTS.items():
        export = FOLDER / (f"{name}.gguf" if "gguf" in options else name)
        quench("export", "--checkpoint", run, "--output", export, "--overwrite", *options)
        right, own = right_of(export)
        megabytes = sum(path.stat().st_size for path in ([export] if export.is_file() else export.glob("*.safetensors"))) / 1e6
        say(right >= (LEAST_RIGHT if name != "lora-q4_0" else LEAST_RIGHT // 2),
            f"{name}: {megabytes:.0f} MB, {right} of {len(QUESTIONS)} right")
        tokenizer = AutoTokenizer.from_pretrained(FOLDER / "lora-hf")
        prompts = [prompt_ids(tokenizer, question) for question in QUESTIONS[:ANSWERS]]
        recorded[name] = {"programs": programs, "prompts": prompts, "answers": own[:ANSWERS]}
        if "Transformers" in programs:
            model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32)
            compare(f"{name}: answers", "Transformers", export, prompts, own[:ANSWERS], transformers_answers(model, prompts, NEW))
        if "llama.cpp" in programs:
            theirs = [tokens for tokens, _ in continuations(export, prompts, NEW, threads=2)]
            compare(f"{name}: answers", "llama.cpp", export, prompts, own[:ANSWERS], theirs)
    (FOLDER / "answers.json").write_text(json.dumps(recorded))


def check_vllm():
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                      VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    for name, recorded in json.loads((FOLDER / "answers.json").read_text()).items():
        if "vLLM" not in recorded["programs"]:
            continue
        llm = LLM(model=str(FOLDER / name), max_model_len=256, max_num_seqs=2, enforce_eager=True, disable_log_stats=True, seed=0)
        results = llm.generate([{"prompt_token_ids": ids} for ids in recorded["prompts"]],
                               SamplingParams(temperature=0, max_tokens=NEW, detokenize=False), use_tqdm=False)
        compare(f"{name}: answers", "vLLM", FOLDER / name, recorded["prompts"], recorded["answers"],
                [list(result.outputs[0].token_ids) for result in results])
        del llm
        cleanup_dist_env_and_memory()


FOLDER.mkdir(parents=True, exist_ok=True)
date_chats.write(FOLDER)
QUESTIONS = [record["messages"][0]["content"] for record in date_chats.records(FOLDER / "questions.jsonl")]
if WITH_VLLM:
    check_vllm()
else:
    check_file(pathlib.Path(sys.argv[3]).resolve())
    check_runs(pathlib.Path(sys.argv[3]).resolve())
    check_exports()
print(f"{failures} failures")
sys.exit(failures > 0)
