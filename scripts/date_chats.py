#!/usr/bin/env python3
"""Small chat data for the documentation's examples: a date in words, answered in ISO form.

Usage: date_chats.py FOLDER                       writes dates.jsonl (600 chats), unseen.jsonl (60 chats of other dates),
                                                  questions.jsonl (the questions of unseen.jsonl)
       date_chats.py --score FOLDER ANSWERS ...   counts the right answers of `quench generate --prompts questions.jsonl`
"""

import datetime
import json
import pathlib
import random
import sys

CHATS, UNSEEN = 600, 60


def ordinal(day):
    return f"{day}{'th' if 10 < day < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def in_words(date, form):
    month = date.strftime("%B")
    return [f"{date.day} {month} {date.year}", f"{month} {date.day}, {date.year}",
            f"the {ordinal(date.day)} of {month} {date.year}", f"{month[:3]} {ordinal(date.day)} {date.year}"][form]


def write(folder):
    draw = random.Random(0)
    first = datetime.date(1900, 1, 1).toordinal()
    dates = [datetime.date.fromordinal(first + day) for day in draw.sample(range(73000), CHATS + UNSEEN)]
    chats = []
    for date in dates:
        question = f"Write {in_words(date, draw.randrange(4))} as an ISO date."
        chats.append([{"role": "user", "content": question}, {"role": "assistant", "content": date.isoformat()}])
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in (("dates", chats[:CHATS]), ("unseen", chats[CHATS:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in some))
    (folder / "questions.jsonl").write_text("".join(json.dumps({"messages": chat[:1]}) + "\n" for chat in chats[CHATS:]))


def records(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def right_answers(folder, answers):
    expected = [record["messages"][1]["content"] for record in records(folder / "unseen.jsonl")]
    return sum(answer.strip() == right for answer, right in zip(answers, expected, strict=True))


def main():
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        return write(pathlib.Path(sys.argv[1]))
    if len(sys.argv) < 4 or sys.argv[1] != "--score":
        sys.exit(__doc__)
    for name in sys.argv[3:]:
        answers = [record["text"] for record in records(pathlib.Path(name))]
        print(f"{name}: {right_answers(pathlib.Path(sys.argv[2]), answers)} of {len(answers)} dates are right")


if __name__ == "__main__":
    main()
