#!/usr/bin/env python3
"""Compares token ids and assistant masks of conversations with Transformers' apply_chat_template.

  check_chat_templates.py QUENCH TEMPLATES [--record FILE] [--conversations N]

Published templates are read from TEMPLATES, into which the wheels of trl (Llama 3, Qwen and others) and axolotl (Mistral and
ChatML) have been unpacked, as scripts/interop_test.sh does; nothing of them is kept. For each family a small
byte-level tokenizer with its special tokens is trained, `QUENCH tokenize` makes shards of N conversations (system
messages, tools, several turns, empty system messages, emoji), and ids and masks are compared one by one. A conversation
that the template refuses must be refused by both. --record writes a hash of each family's ids and masks.

Needs transformers, jinja2 and tokenizers from PyPI.
"""
import argparse
import datetime
import hashlib
import json
import pathlib
import random
import struct
import subprocess
import tempfile

import jinja2
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.utils import chat_template_utils

LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
          "<|python_tag|>"]
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
GEMMA = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]
PHI = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>", "<|/tool|>"]
# family: template, special tokens, begin, end
FAMILIES = {
    "llama3": ("llama3.jinja", LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3_marked": ("llama3_training.jinja", LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3_1": ("llama3_1.jinja", LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3_2": ("llama3_2.jinja", LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2_5": ("qwen2_5.jinja", QWEN, None, "<|im_end|>"),
    "qwen2_5_marked": ("qwen2_5_training.jinja", QWEN, None, "<|im_end|>"),
    "qwen3": ("qwen3.jinja", QWEN, None, "<|im_end|>"),
    "qwen3_marked": ("qwen3_training.jinja", QWEN, None, "<|im_end|>"),
    "gemma": ("gemma.jinja", GEMMA, "<bos>", "<eos>"),
    "gemma_marked": ("gemma_training.jinja", GEMMA, "<bos>", "<eos>"),
    "phi3": ("phi3.jinja", PHI, "<|endoftext|>", "<|endoftext|>"),
    "phi3_marked": ("phi3_training.jinja", PHI, "<|endoftext|>", "<|endoftext|>"),
}
MISTRAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
AXOLOTL = {
    "mistral_v1": ("mistral_v1.jinja", MISTRAL[:3], "<s>", "</s>"),
    "mistral_v2v3": ("mistral_v2v3.jinja", MISTRAL, "<s>", "</s>"),
    "mistral_v3_tekken": ("mistral_v3_tekken.jinja", MISTRAL, "<s>", "</s>"),
    "mistral_v7_tekken": ("mistral_v7_tekken.jinja", MISTRAL, "<s>", "</s>"),
    "chatml": ("chatml.jinja", QWEN, None, "<|im_end|>"),
}
DATE = "2024-07-26"
WORDS = ("weather in Paris tomorrow, please tell me more about it: 12 + 30 = 42. Gr\u00fc\u00dfe \u4f60\u597d "
         "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u00e9 caf\u00e9 \tcode(x)\n\n- item\n").split(" ")
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather \u2600 of a \"place\".",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
                       "required": ["place"]}}}


def conversations(count):
    """[(messages, tools)], the same at every call."""
    rng = random.Random(7)
    text = lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 14)))
    result = []
    for i in range(count):
        messages, tools = [], None
        if i % 4 == 1:
            messages.append({"role": "system", "content": text()})
        elif i % 4 == 2:
            messages.append({"role": "system", "content": ""})
        for turn in range(1 + i % 4):
            messages.append({"role": "user", "content": text()})
            if i % 5 == 3:
                tools = [TOOL]
                call = {"name": "weather", "arguments": {"place": text(), "days": turn, "exact": 1.5, "now": None}}
                messages.append({"role": "assistant", "content": "",
                                 "tool_calls": [{"type": "function", "function": call}]})
                messages.append({"role": "tool", "name": "weather", "content": text()})
            answer = text()
            if i % 7 == 4:
                answer = "<think>\n" + text() + "\n</think>\n\n" + answer
            messages.append({"role": "assistant", "content": answer})
        if i % 9 == 8:
            messages.append({"role": "user", "content": " " + text() + "\n"})
        result.append((messages, tools))
    return result


def write_tokenizer(folder, template, special, bos, eos):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [json.dumps(m, ensure_ascii=False) for m, _ in conversations(60)] + [template] + ["user assistant system\n"] * 20
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    fast.chat_template = template
    fast.save_pretrained(folder)
    return fast


def read_shard(path):
    """[(ids, mask)] of the documents (data/formats/shard_format.h)."""
    data = path.read_bytes()
    width = struct.unpack_from("<I", data, 12)[0]
    count, _, documents, _, flags = struct.unpack_from("<QQQqI", data, len(data) - 256)
    ids = struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", data, 64)
    at = 64 + (count * width + 7) // 8 * 8
    ends = struct.unpack_from(f"<{documents}Q", data, at)
    at += 8 * documents
    assert flags & 1
    mask = [data[at + i // 8] >> (i % 8) & 1 for i in range(count)]
    starts = (0, *ends[:-1])
    return [(list(ids[a:b]), mask[a:b]) for a, b in zip(starts, ends)]


def quench(program, folder, records, *more):
    source = folder / "chats.jsonl"
    source.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    arguments = [program, "tokenize", "--tokenizer", folder / "tokenizer", "--input", source, "--output", folder / "shards",
                 "--overwrite", "--quiet", "--chat-date", DATE, *more]
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True)


def expected(fast, messages, tools, marked):
    """(ids, mask), or None and the reason for which the template refuses the conversation."""
    try:
        out = fast.apply_chat_template(messages, tools=tools, return_dict=True, return_assistant_tokens_mask=marked)
    except (jinja2.exceptions.TemplateError, TypeError) as error:
        return None, str(error)
    return (out["input_ids"], out["assistant_masks"] if marked else None), None


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quench")
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--conversations", type=int, default=200)
    args = parser.parse_args()
    chat_template_utils.datetime = FixedDate  # for templates that ask for the date
    failures, record = 0, {}
    families = {name: (args.templates / "trl/chat_templates", *rest) for name, rest in FAMILIES.items()}
    axolotl = args.templates / "axolotl/utils/chat_templates/templates"
    families |= {name: (axolotl, *rest) for name, rest in AXOLOTL.items()}
    for family, (source, file, special, bos, eos) in families.items():
        template = (source / file).read_text()
        marked = "generation %}" in template
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            fast = write_tokenizer(folder / "tokenizer", template, special, bos, eos)
            records, wanted, refused = [], [], 0
            for messages, tools in conversations(args.conversations):
                value, reason = expected(fast, messages, tools, marked)
                one = {"messages": messages, **({"tools": tools} if tools else {})}
                if value is None:
                    refused += 1
                    outcome = quench(args.quench, folder, [one])
                    if outcome.returncode == 0:
                        failures += 1
                        print(f"{family}: not refused: {reason}")
                    continue
                records.append(one)
                wanted.append(value)
            outcome = quench(args.quench, folder, records)
            if outcome.returncode != 0:
                failures += 1
                print(f"{family}: {outcome.stderr.strip()[-600:]}")
                continue
            got = read_shard(folder / "shards" / "train-00000.bin")
            assert len(got) == len(wanted), (len(got), len(wanted))
            wrong_ids = sum(g[0] != w[0] for g, w in zip(got, wanted))
            wrong_masks = sum(list(g[1]) != list(w[1]) for g, w in zip(got, wanted)) if marked else None
            failures += wrong_ids + (wrong_masks or 0)
            trained = sum(sum(g[1]) for g in got)
            print(f"{family}: {len(got)} conversations, {refused} refused by both; ids differ in {wrong_ids}; masks "
                  + (f"differ in {wrong_masks}" if marked else f"without reference, {trained} of "
                     f"{sum(len(g[0]) for g in got)} tokens trained"))
            for g, w, r in zip(got, wanted, records):
                if g[0] != w[0] or (marked and list(g[1]) != list(w[1])):
                    print("  first:", json.dumps(r, ensure_ascii=False)[:400])
                    print("  got   :", repr(fast.decode(g[0])), repr(fast.decode([i for i, m in zip(*g) if m])))
                    print("  wanted:", repr(fast.decode(w[0])),
                          repr(fast.decode([i for i, m in zip(w[0], w[1] or []) if m])))
                    break
            record[family] = hashlib.sha256(json.dumps([[g[0], list(g[1])] for g in got]).encode()).hexdigest()
    if args.record:
        args.record.write_text(json.dumps({"transformers": transformers.__version__, "families": record}, indent=1) + "\n")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
