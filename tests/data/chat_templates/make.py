#!/usr/bin/env python3
"""Records what published chat templates make of conversations, rendered by Transformers: rendered.json beside this file.

  make.py --llama2 FILE

Needs transformers, jinja2 and trl from PyPI, which ships the templates of Llama 3 and Qwen 2.5 (ChatML); FILE holds the
"chat_template" of Llama 2 Chat's tokenizer_config.json. Qwen's adds a system message of its own where there is none, so
ChatML's conversations have one.
"""
import argparse
import importlib.resources
import json
import pathlib

import transformers
import trl
from tokenizers import Tokenizer, models

SYSTEM = {"role": "system", "content": "You are terse."}
QUESTION = {"role": "user", "content": "What is 2 + 2?\nAnd 3 * 3?"}
ANSWER = {"role": "assistant", "content": "4, and 9."}
AGAIN = [{"role": "user", "content": "Thanks. G\u00f6odbye \u4f60\u597d"}, {"role": "assistant", "content": "Bye!\n\nSee you."}]
SPACES = [{"role": "user", "content": " \n\u3000Q\t"}, {"role": "assistant", "content": "\u00a0 A \n"}]
CONVERSATIONS = {
    "one answer": [QUESTION, ANSWER],
    "system": [SYSTEM, QUESTION, ANSWER],
    "two answers": [QUESTION, ANSWER, *AGAIN],
    "system and two answers": [SYSTEM, QUESTION, ANSWER, *AGAIN],
    "white space": [{"role": "system", "content": " S \n"}, *SPACES],
    "question at the end": [SYSTEM, QUESTION, ANSWER, QUESTION],
}


def render(template, bos, eos, conversation):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=bos, eos_token=eos)
    return tokenizer.apply_chat_template(conversation, chat_template=template, tokenize=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama2", required=True, type=pathlib.Path)
    args = parser.parse_args()
    published = importlib.resources.files("trl") / "chat_templates"
    templates = {
        "llama2": (args.llama2.read_text(), "<s>", "</s>"),
        "llama3": ((published / "llama3.jinja").read_text(), "<|begin_of_text|>", "<|eot_id|>"),
        "chatml": ((published / "qwen2_5.jinja").read_text(), None, "<|im_end|>"),
    }
    cases = []
    for name, (template, bos, eos) in templates.items():
        for title, conversation in CONVERSATIONS.items():
            if name == "chatml" and conversation[0]["role"] != "system":
                continue
            cases.append({"template": name, "conversation": title, "messages": conversation,
                          "text": render(template, bos, eos, conversation)})
    figures = {"versions": {"transformers": transformers.__version__, "trl": trl.__version__}, "cases": cases}
    target = pathlib.Path(__file__).resolve().parent / "rendered.json"
    target.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
