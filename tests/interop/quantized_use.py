"""Small models to quantize, and what one does with a quantized folder from the command line: forward, eval, generate, LoRA on it,
another quantization."""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def random_model(folder, vocabulary, hidden, intermediate, heads):
    """A Llama of two layers in bf16, with a tokenizer of bytes."""
    torch.manual_seed(2)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=2,
                         num_attention_heads=heads, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    tokens = {token: i for i, token in enumerate(special + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(tokens, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
                            pad_token="<pad>").save_pretrained(folder)


class Program:
    """The program QUENCH with a folder for its files."""

    def __init__(self, quench, folder):
        self.quench, self.folder = str(pathlib.Path(quench).resolve()), pathlib.Path(folder).resolve()

    def run(self, *arguments):
        done = subprocess.run([self.quench, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def logits(self, model, ids):
        save_file({"input_ids": ids}, self.folder / "ids.safetensors")
        self.run("forward", "--model", model, "--input", self.folder / "ids.safetensors", "--output",
                 self.folder / "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32")
        return load_file(self.folder / "logits.safetensors")["logits"]

    def use(self, model, vocabulary, most=0.05, base="stored"):
        """Runs the verbs on the folder `model`; returns what they found, raises where one fails. `most`: relative distance of
        logits when 8-bit integers, without rounded inputs, replace the stored values. `base`: of LoRA."""
        random, place = np.random.default_rng(5), self.folder / "use"
        place.mkdir(exist_ok=True)
        np.save(place / "tokens.npy", random.integers(4, vocabulary, 2048).astype(np.uint16))
        ids = random.integers(4, vocabulary, (1, 32))
        evaluated = json.loads(self.run("eval", "--model", model, "--data", place / "tokens.npy", "--seq-len", 32, "--device",
                                        "cpu", "--json"))
        loss = evaluated["loss"]
        text = self.run("generate", "--model", model, "--prompt", "Once", "--max-new-tokens", 6, "--device", "cpu")
        assert text.strip(), "generate wrote no text"
        config = {"model": {"path": str(model)}, "lora": {"rank": 4, "alpha": 8, "base": base},
                  "data": {"train": [str(place / "tokens.npy")], "seq_len": 32},
                  "training": {"steps": 6, "micro_batch_size": 4, "global_batch_size": 4}, "optimizer": {"lr": 1e-2},
                  "lr_schedule": {"warmup_steps": 1}, "run": {"folder": str(place / model.name)}}
        (place / "lora.json").write_text(json.dumps(config))
        shutil.rmtree(place / model.name, ignore_errors=True)
        self.run("train", place / "lora.json", "--device", "cpu")
        lines = map(json.loads, (place / model.name / "metrics/metrics.jsonl").read_text().splitlines())
        losses = [line["loss"] for line in lines if "loss" in line]
        assert np.isfinite(losses).all() and len(losses) == 6, f"losses of LoRA: {losses}"
        before, output = self.logits(model, ids), place / f"{model.name}-int8"
        self.run("quantize", "--model", model, "--allow-requantize", "--scheme", "int8_weight_only", "--output", output,
                 "--overwrite")
        after = self.logits(output, ids)
        apart = float(np.linalg.norm(after - before) / np.linalg.norm(before))
        assert apart < most, f"logits after requantization differ by {apart:.1e}"
        return f"eval {loss:.3f}, LoRA {losses[0]:.3f} to {losses[-1]:.3f}, requantized {apart:.1e}"
