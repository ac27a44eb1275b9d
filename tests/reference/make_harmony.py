"""Writes harmony.json: a small tokenizer of the shape of gpt-oss's, and what Hugging Face tokenizers makes of awkward
texts with it. tiktoken must give the same ids, with the expression and the special tokens of its o200k_harmony.

    pip install tokenizers tiktoken
    python tests/reference/make_harmony.py

The 700 tokens are trained on the text below; tests/data/tokenizer/tokenizer_reference_golden_test.cpp reads the result.
"""

import json
import pathlib
import random

import tiktoken
import tokenizers
from tiktoken_ext import openai_public
from tokenizers import decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
TOKENS = 700
SPECIAL_TOKENS = 21  # the first ones, <|startoftext|> to <|endofprompt|>

TRAINING_TEXT = """The quick brown fox jumps over the lazy dog. The dog sleeps; the fox does not, and it's fine.
HTTPServer, HttpServer, httpServer and XMLHttpRequest are camelCase names; I'LL, they're, WE'VE and don't are words.
In 1984 and 2024 there were 12 or 345 of them, at 6.78 each: 1234567890. https://example.org/a/b//c.html
    def function(argument):
\t\treturn argument + 1  # comment\r
\u00c9t\u00e9 \u00e0 la plage, c'est d\u00e9j\u00e0 vu. \u00dcber allen Gipfeln ist Ruh. \u01c5 \u02b0a
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22
""" * 8

TEXTS = [
    "", " ", "  ", "a", " a", "  a", "a  ", "\n", "\n\n", " \n ", "\r\n", "a\r\n\r\nb", "a \n\n  b", "\t\tx", "   \n\n   y",
    "camelCase HTTPServer XMLHttpRequest iOS macOS ABc aBC", "it's IT'S It'S they'RE I'll I'LL'd we've don't'", "'s 's' a's's",
    "can\u2019t won\u2019t", "1234567890 3.14 -17 1,000,000 12a34B", "a//\n b/\r\n/ ///\n\n/", "x!!!\n\ny ...\r\n\r\nz ?/\n/",
    "\u00c9t\u00e9 \u00c9T\u00c9 \u00e9t\u00c9 e\u0301te\u0301 E\u0301TE\u0301", "\u01c5 \u01c5a A\u01c5 a\u01c5 \u02b0 A\u02b0 a\u02b0B",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22\u0e22 \u0627\u0644\u0639\u064e\u0631\u064e", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6c49\u5b57ABC\u6f22abc",
    "\u0301a a\u0301\u0302 \u0301\u0302 1\u0301 \u20e3 1\ufe0f\u20e3", "\u2460\u2461\u2462\u2463 \u00bd\u00bc \u0661\u0662\u0663\u0664 \u2167",
    "\U0001f600\U0001f44d\U0001f3fd \U0001f469\u200d\U0001f469\u200d\U0001f467 a\U0001f600b", "\u00a0non\u00a0breaking\u3000wide\u2009thin\u2028line\u0085next",
    "zero\u200bwidth\ufeffmark", "\u0000\u0001\u001b[31m\u007f", "def f(x):\n    return x+1\n\n\n\tpass\n", "_snake_case_ __init__ $x @y #z", " !a !A _a _A -a",
    "<|start|>system<|message|>Reasoning: low<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant",
    "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>",
    "<|channel|>final<|message|>Bye<|return|>", "<|startoftext|>a<|endoftext|> b <|endofprompt|>c", "<|reserved_200000|><|reserved_200013|>",
    "<|START|> <|start |> <|start|", "a<|start|>\nb <|end|> c", "x" * 50, "the" * 20, "AbC" * 9, " " * 33 + "x",
]
RANDOM_TEXTS = 60
PIECES = ["a", "B", "c", "D", "\u00e9", "\u00c9", "\u01c5", "\u02b0", "\u4e16", "\u0301", "\u093f", "1", "23", "\u0663", "'s", "'S", "'ll", "'", " ", "  ", "\n", "\r\n",
          "\t", "/", "//", ".", "!?", "_", "\u2019", "\u00a0", "\U0001f600", "the", "ING", "<|end|>"]


def random_texts():
    rng = random.Random(5)
    return ["".join(rng.choice(PIECES) for _ in range(rng.randint(3, 24))) for _ in range(RANDOM_TEXTS)]


def published():
    """Expression and special tokens of tiktoken's o200k_harmony, whose merges it would download."""
    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    return openai_public.o200k_harmony()


def trained(pattern):
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TRAINING_TEXT], trainers.BpeTrainer(
        vocab_size=TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tokenizer.to_str())


def bytes_of_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def main():
    source = published()
    pipeline = trained(source["pat_str"])
    vocabulary = pipeline["model"]["vocab"]
    # 200018 has two names, of which the tokenizer.json has one.
    names = [name for name in sorted(source["special_tokens"], key=source["special_tokens"].get) if name != "<|reserved_200018|>"]
    specials = {name: len(vocabulary) + i for i, name in enumerate(names[:SPECIAL_TOKENS])}
    pipeline["added_tokens"] = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                                 "normalized": False, "special": True} for name, i in specials.items()]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(pipeline))
    alphabet = bytes_of_alphabet()
    ranks = {bytes(alphabet[c] for c in token): i for token, i in vocabulary.items()}
    other = tiktoken.Encoding("small_harmony", pat_str=source["pat_str"], mergeable_ranks=ranks, special_tokens=specials)
    texts = TEXTS + random_texts()
    cases = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == other.encode(text, allowed_special="all"), text
        cases.append([tokenizer.encode(text).ids, ids, tokenizer.decode(ids, skip_special_tokens=False),
                      tokenizer.decode(ids, skip_special_tokens=True)])
    model = pipeline.pop("model")
    result = {"made_by": f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}",
              "case": ["ids", "ids without special tokens", "decoded", "decoded without special tokens"],
              "texts": texts, "models": {"bpe": model},
              "tokenizers": [{"name": "o200k_harmony", "model": "bpe", "pipeline": pipeline, "cases": cases}]}
    lines = json.dumps(result, ensure_ascii=True, separators=(",", ":"))
    lines = lines.replace('{"name":', '\n{"name":').replace('"models":', '\n"models":').replace("],[[", "],\n[[")
    (HERE / "harmony.json").write_text(lines + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
