#!/usr/bin/env python3
"""Renders conversations with published chat templates, beside Transformers' apply_chat_template.

  sweep_chat_templates.py QUENCH TEMPLATES [--match TEXT] [--show N]

TEMPLATES is a folder into which packages that ship templates have been unpacked (scripts/interop_test.sh): every *.jinja
file, and every "chat_template" of a *.json file. Nothing of them is kept. For each template a byte-level tokenizer is
made with the special tokens that the template names; `QUENCH tokenize` encodes the conversations, and their ids are
compared with those of Transformers. A pair of a template and a conversation

  equal      has the ids of Transformers
  differs    has others: none may
  refused    is rendered by Transformers alone; QUENCH names why: under 1% of the pairs that Transformers renders
  accepted   is refused by Transformers alone
  neither    is refused by both

Arguments of tool calls that are JSON texts may be those of Transformers for the text or for its object. Where a template
renders no text of contents that are strings, because it takes lists of parts alone, QUENCH passes one part and warns: the
ids are those of Transformers for that list. A conversation of which the template does not write a turn of the assistant
is refused by QUENCH; those pairs are counted under "masks" and compared again with --train-on all. They count as
refusals. Needs transformers, jinja2 and tokenizers from PyPI.
"""
import argparse
import collections
import copy
import datetime
import hashlib
import json
import pathlib
import re
import struct
import subprocess
import tempfile

import jinja2
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.utils import chat_template_utils

DATE = "2024-07-26"
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a \"place\" \u2600.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "A city"}, "days": {"type": "integer", "default": 1},
        "units": {"type": "string", "enum": ["C", "F"]}, "tags": {"type": "array", "items": {"type": "string"}}}}}}]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, number="abcdefgh1", name="weather"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, number="abcdefgh1"):
    return {"role": "tool", "tool_call_id": number, "name": "weather", "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
# name: messages, tools, arguments of the template
CONVERSATIONS = {
    "plain": ([user("Hi"), assistant("Hello!")], None, {}),
    "system": ([SYSTEM, user("Hi"), assistant("Hello!")], None, {}),
    "turns": ([user("One"), assistant("Two"), user("Three"), assistant("Four")], None, {}),
    "system_turns": ([SYSTEM, user("One"), assistant("Two"), user("Three"), assistant("Four")], None, {}),
    "empty_system": ([{"role": "system", "content": ""}, user("Hi"), assistant("Hello!")], None, {}),
    "unicode": ([user("Gr\u00fc\u00dfe \u4f60\u597d \U0001f600\u200d"), assistant("caf\u00e9 \"q\" \\n {{ x }}")], None, {}),
    "white_space": ([user("  a\n\n b \n"), assistant("\n\n c  \n")], None, {}),
    "tools_unused": ([user("Hi"), assistant("Hello!")], TOOLS, {}),
    "tool_call": ([user("Weather?"), assistant("", tool_calls=[call({"place": "Paris", "days": 2})]), result("sunny"),
                   assistant("Sunny.")], TOOLS, {}),
    "tool_call_string": ([user("Weather?"), assistant("", tool_calls=[call('{"place": "Paris", "days": 2}')]),
                          result("sunny"), assistant("Sunny.")], TOOLS, {}),
    "tool_call_null": ([SYSTEM, user("Weather?"), assistant(None, tool_calls=[call({"place": "Paris"})]),
                        result('{"t": 21.5}'), assistant("21.5 degrees.")], TOOLS, {}),
    "tool_call_text": ([user("Weather?"), assistant("I look.", tool_calls=[call({"place": "Paris"})]), result("sunny"),
                        assistant("Sunny.")], TOOLS, {}),
    "tool_calls": ([user("Weather?"), assistant("", tool_calls=[call({"place": "Paris"}), call({"place": "Rome", "tags": [
        "a", 1, None, True]}, "abcdefgh2")]), result("sunny"), result("rain", "abcdefgh2"), assistant("Both.")], TOOLS, {}),
    "call_last": ([user("Weather?"), assistant("", tool_calls=[call({"place": "Paris"})])], TOOLS, {}),
    "reasoning": ([user("2+2?"), assistant("4", reasoning_content="two and two"), user("3+3?"),
                   assistant("6", reasoning_content="three twice")], None, {}),
    "thinking_off": ([user("Hi"), assistant("Hello!")], None, {"enable_thinking": False}),
    "thoughts": ([user("2+2?"), assistant("<think>\ntwo and two\n</think>\n\n4"), user("more"), assistant("no")], None, {}),
}
# Texts by which QUENCH says that it cannot tell what the assistant is to produce.
MASKS = ("does not render this assistant turn", "its position in the text", "is never trained", "it must be masked", "nothing to train on", "never trained")
SPECIAL = re.compile(r"<\|[^|<>{}' \n]{1,60}\|>|<[\uff5c][^<>\n]{1,60}[\uff5c]>|\[/?[A-Z_]{3,30}\]|</?s>|<(?:start|end)_of_turn>|<bos>|<eos>")


def templates(folder):
    """{name: text} of different templates."""
    found, seen = {}, set()

    def add(name, text):
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in seen:
            seen.add(key)
            found[name] = text

    for path in sorted(folder.rglob("*.jinja")):
        add(str(path.relative_to(folder)), path.read_text())
    for path in sorted(folder.rglob("*.json")):
        try:
            data = json.loads(path.read_text())
        except ValueError:
            continue
        texts = []

        def visit(value):
            if isinstance(value, dict):
                for key, item in value.items():
                    if key == "chat_template" and isinstance(item, str) and "{" in item:
                        texts.append(item)
                    else:
                        visit(item)
            elif isinstance(value, list):
                for item in value:
                    visit(item)

        visit(data)
        for i, text in enumerate(texts):
            add(f"{path.relative_to(folder)}#{i}", text)
    return found


def write_tokenizer(folder, template):
    """A tokenizer of bytes with the special tokens that the template names."""
    special = ["<|bos|>", "<|eos|>", "<|pad|>", *dict.fromkeys(SPECIAL.findall(template))]
    special = list(dict.fromkeys(special))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|eos|>",
                                                pad_token="<|pad|>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    return fast


def read_shard(path):
    """ids of the documents (data/formats/shard_format.h)."""
    data = path.read_bytes()
    width = struct.unpack_from("<I", data, 12)[0]
    count, _, documents, _, _ = struct.unpack_from("<QQQqI", data, len(data) - 256)
    ids = struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", data, 64)
    ends = struct.unpack_from(f"<{documents}Q", data, 64 + (count * width + 7) // 8 * 8)
    return [list(ids[a:b]) for a, b in zip((0, *ends[:-1]), ends)]


def record_of(conversation):
    messages, tools, arguments = conversation
    record = {"messages": messages}
    if tools:
        record["tools"] = tools
    if arguments:
        record["chat_template_kwargs"] = arguments
    return record


def quench(program, folder, records, *more):
    """ids of the records, or the reason."""
    source = folder / "chats.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in records))
    arguments = [program, "tokenize", "--tokenizer", folder / "tokenizer", "--input", source, "--output", folder / "shards",
                 "--overwrite", "--quiet", "--chat-date", DATE, *more]
    outcome = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if outcome.returncode != 0:
        return None, outcome.stderr.strip().splitlines()[-1] if outcome.stderr.strip() else f"status {outcome.returncode}"
    return read_shard(folder / "shards" / "train-00000.bin"), None


def with_objects(messages):
    """Arguments of calls as objects, which QUENCH makes of the JSON texts that OpenAI's clients send."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for one in message.get("tool_calls", []):
            if isinstance(one["function"]["arguments"], str):
                one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    return messages


def with_parts(messages):
    """Contents as lists of parts."""
    return [{**m, "content": [{"type": "text", "text": m["content"]}]} if m.get("content") and isinstance(m["content"], str)
            else m for m in messages]


def writes_answers(fast):
    """Whether the template is one of chats: those of rerankers write no answer."""
    for form in (lambda m: m, with_parts):
        try:
            if "Hello!" in fast.apply_chat_template(form(CONVERSATIONS["plain"][0]), tokenize=False):
                return True
        except Exception:
            return True
    return False


def takes_parts_alone(fast):
    """Whether the template renders no text of a content that is a string."""
    question = [{"role": "user", "content": "quench-question"}]
    try:
        return all(("quench-question" in fast.apply_chat_template(m, tokenize=False)) == wanted
                   for m, wanted in ((question, False), (with_parts(question), True)))
    except Exception:
        return False


def expected(fast, conversation):
    """The ids, and those with arguments as objects where they are others; or None and the reason."""
    messages, tools, arguments = conversation
    found, reason = [], None
    if takes_parts_alone(fast):
        messages = with_parts(messages)
    for given in (with_objects(messages), messages):
        try:
            out = fast.apply_chat_template(given, tools=tools, return_dict=True, **arguments)
        except Exception as error:  # whatever a template raises
            reason = reason or f"{type(error).__name__}: {error}"
            continue
        if list(out["input_ids"]) not in found:
            found.append(list(out["input_ids"]))
    return found or None, reason


def compare(program, folder, fast, conversations, counts, report):
    """Counts the outcome of each conversation; calls report(kind, conversation, detail) for those that need a look."""
    wanted = {name: expected(fast, c) for name, c in conversations.items()}
    rendered = [name for name in conversations if wanted[name][0] is not None]
    got, _ = quench(program, folder, [record_of(conversations[n]) for n in rendered]) if rendered else ([], None)
    one_by_one = got is None or len(got) != len(rendered)
    outcomes = {} if one_by_one else dict(zip(rendered, got))
    for name, conversation in conversations.items():
        ids, reason = wanted[name]
        if ids is None:
            ours, _ = quench(program, folder, [record_of(conversation)])
            counts["neither" if ours is None else "accepted"] += 1
            if ours is not None:
                report("accepted", name, reason)
            continue
        if one_by_one:
            found, why = quench(program, folder, [record_of(conversation)])
            if found is None and any(text in why for text in MASKS):
                counts["masks"] += 1
                report("masks", name, why)
                found, why = quench(program, folder, [record_of(conversation)], "--train-on", "all")
            if found is None:
                counts["refused"] += 1
                report("refused", name, why)
                continue
            outcomes[name] = found[0]
        if outcomes[name] in ids:
            counts["equal"] += 1
        else:
            counts["differs"] += 1
            report("differs", name, f"wanted {fast.decode(ids[0])!r}\n      got    {fast.decode(outcomes[name])!r}")


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quench")
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("--match", default="", help="only templates whose name holds this")
    parser.add_argument("--show", type=int, default=30, help="how many pairs of each kind to print")
    args = parser.parse_args()
    chat_template_utils.datetime = FixedDate  # for templates that ask for the date
    transformers.logging.set_verbosity_error()
    kinds = ("equal", "differs", "refused", "masks", "accepted", "neither")
    packages, shown, unusable, without_answers = {}, collections.Counter(), 0, []
    for name, template in templates(args.templates).items():
        if args.match not in name:
            continue
        counts = packages.setdefault(pathlib.Path(name).parts[0], collections.Counter())

        def report(kind, conversation, detail):
            shown[kind] += 1
            if shown[kind] <= args.show:
                print(f"{kind}: {name} x {conversation}: {detail}", flush=True)

        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            fast = write_tokenizer(folder / "tokenizer", template)
            try:
                chat_template_utils._compile_jinja_template(template)
            except jinja2.exceptions.TemplateError:
                unusable += 1  # by Transformers too
                continue
            if not writes_answers(fast):
                without_answers.append(name)
                continue
            counts["templates"] += 1
            compare(args.quench, folder, fast, CONVERSATIONS, counts, report)
    total = sum(packages.values(), collections.Counter())
    print("| package | templates | " + " | ".join(kinds) + " |\n|" + "---|" * (len(kinds) + 2))
    for package, counts in [*packages.items(), ("all", total)]:
        print(f"| {package} | {counts['templates']} | " + " | ".join(str(counts[kind]) for kind in kinds) + " |")
    rendered = total["equal"] + total["differs"] + total["refused"]
    refused = total["refused"] + total["masks"]
    share = refused / max(rendered, 1)
    print(f"{rendered} pairs that Transformers renders: {total['differs']} differ, {refused} ({share:.2%}) refused by Quench "
          f"alone, {total['masks']} of them for a turn that the template does not write; {unusable} templates that Transformers cannot compile; "
          f"left out, as they write no answers: {', '.join(without_answers) or 'none'}")
    raise SystemExit(1 if total["differs"] or share >= 0.01 or rendered == 0 else 0)


if __name__ == "__main__":
    main()
