"""Sums of two small numbers as prompts with checkable answers: what the benchmarks of learning from rewards ask."""
import json
import random
import re


def sums(largest, held_out, seed=1):
    """Records {"prompt": messages, "answer"} of all sums of 1 to `largest`, shuffled: the rest, and `held_out` of them."""
    pairs = [(a, b) for a in range(1, largest + 1) for b in range(1, largest + 1)]
    random.Random(seed).shuffle(pairs)
    if held_out >= len(pairs):
        raise ValueError(f"{held_out} sums cannot be held out of {len(pairs)}")
    records = [dict(prompt=[dict(role="user", content=f"What is {a} + {b}?")], answer=str(a + b)) for a, b in pairs]
    return records[held_out:], records[:held_out]


def write_records(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def is_right(text, answer):
    """Whether the last number of a text is the answer, as the reward numeric_match decides."""
    numbers = re.findall(r"[-+]?\d+(?:\.\d+)?", text.replace(",", ""))
    return bool(numbers) and abs(float(numbers[-1]) - float(answer)) <= 1e-6
