#!/usr/bin/env python3
"""Makes this folder: a tiny model with two tokenizers, and what lm-evaluation-harness and Transformers score with them.

Needs torch, transformers, tokenizers and lm-eval from PyPI; runs on the CPU in f32. figures.json holds the versions.

  bos/  a byte-level BPE that puts a begin-of-text token before a text, as Llama 3 does
  eos/  the same without one: the end-of-text token is the prefix, as for Qwen
"""
import json
import math
import pathlib
import re

import lm_eval
import lm_eval.models.huggingface
import tokenizers
import torch
import transformers
from lm_eval.api.instance import Instance
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
BOS, EOS = "<|begin|>", "<|end|>"

SHORT = "The ferry leaves at six.\n"
MIDDLE = ("Rain fell on the harbour all night, and in the morning the boats lay low in the water. \U0001F6A2 "
          "Nobody had slept much. Zo\u00eb counted the nets twice, na\u00efvely hoping for 12 and finding 11; "
          "her brother said:\u00a0\u201cGo on, it\u2019s only a net.\u201d \u6771\u4eac\u3000\u6e2f \U0001F469\u200D\U0001F52C\n")
TRIMMED = ' \u2014 lamp trimmed'
LONG = "".join(
    f"{i}. On day {i} the keeper wrote {['calm sea', 'fog, no ships', 'two sails to the north', 'storm'][i % 4]}"
    f"{TRIMMED if i % 3 == 0 else ''}; depth {i * 7 % 23} m.{chr(10) * (2 if i % 5 == 0 else 1)}"
    for i in range(1, 41))
TEXTS = {"short": SHORT, "middle": MIDDLE, "long": LONG, "starts_with_prefix": BOS + SHORT, "spaces": "  a\tb \n c  "}
WINDOWS = [16, 64, 128]
STRIDES = [(16, 4), (64, 32), (64, 64), (128, 100)]


def make_tokenizers():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=[BOS, EOS],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([LONG, MIDDLE], trainer)
    loaded = {}
    for name, special in (("eos", {"eos_token": EOS}), ("bos", {"bos_token": BOS, "eos_token": EOS})):
        if name == "bos":
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}, indent=2) + "\n")
        loaded[name] = transformers.AutoTokenizer.from_pretrained(folder)
    return loaded


def make_model():
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=320, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.4,
        bos_token_id=0, eos_token_id=1, dtype="float32")
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(HERE / "bos")
    (HERE / "bos" / "generation_config.json").unlink(missing_ok=True)
    return model


def rolling(model, tokenizer, add_bos, window, text):
    harness = lm_eval.models.huggingface.HFLM(
        pretrained=model, tokenizer=tokenizer, max_length=window, batch_size=1, device="cpu", add_bos_token=add_bos)
    request = Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0)
    likelihood = harness.loglikelihood_rolling([request], disable_tqdm=True)[0]
    # As the task wikitext does.
    words, size = len(re.split(r"\s+", text)), len(text.encode())
    return {"prefix": harness.prefix_token_id, "tokens": len(harness.tok_encode(text)), "words": words, "bytes": size,
            "log_likelihood": likelihood, "word_perplexity": math.exp(-likelihood / words),
            "byte_perplexity": math.exp(-likelihood / size), "bits_per_byte": -likelihood / size / math.log(2)}


def strided(model, tokenizer, window, stride, text):
    ids = tokenizer(text, return_tensors="pt").input_ids
    size, seen, likelihood, tokens = ids.shape[1], 0, 0.0, 0
    for begin in range(0, size, stride):
        end = min(begin + window, size)
        part, labels = ids[:, begin:end], ids[:, begin:end].clone()
        labels[:, :-(end - seen)] = -100
        with torch.no_grad():
            logits = model(part).logits[0, :-1].double()
        scored = labels[0, 1:] != -100
        losses = torch.nn.functional.cross_entropy(logits, labels[0, 1:], reduction="none", ignore_index=-100)
        likelihood -= losses.sum().item()
        tokens += int(scored.sum())
        seen = end
        if end == size:
            break
    return {"tokens": tokens, "log_likelihood": likelihood}


def main():
    tokenizer, model = make_tokenizers(), make_model()
    cases = []
    for name, text in TEXTS.items():
        for window in WINDOWS:
            for kind, add_bos in (("bos", None), ("bos", False), ("eos", None)):
                cases.append({"text": name, "tokenizer": kind, "special_tokens": add_bos is None, "window": window,
                              "stride": 0, **rolling(model, tokenizer[kind], add_bos, window, text)})
        if name == "starts_with_prefix":
            continue  # there the guide's code doubles the begin-of-text token
        for window, stride in STRIDES:
            for kind in ("bos", "eos"):
                figures = strided(model, tokenizer[kind], window, stride, text)
                cases.append({"text": name, "tokenizer": kind, "special_tokens": True, "window": window,
                              "stride": stride, **figures})
    figures = {"versions": {"lm_eval": lm_eval.__version__, "transformers": transformers.__version__,
                            "tokenizers": tokenizers.__version__, "torch": torch.__version__},
               "texts": TEXTS, "cases": cases}
    (HERE / "figures.json").write_text(json.dumps(figures, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
