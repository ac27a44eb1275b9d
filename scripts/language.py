#!/usr/bin/env python3
"""Vocabulary of comments, messages and documentation.

  language.py            counts: comment words per 1,000 lines, glossary terms and flagged words per 1,000 words, openings
  language.py --openings prints as FILE:LINE the headers without an opening comment, and the comments whose first word is
                         "of" or "those" and which so lack their noun
  language.py --check    prints every flagged word as FILE:LINE and exits 1 when there is one
  language.py [--check | --openings] --root FOLDER   the same for another checkout, with the glossary of this one

Terms are those of docs/reference/glossary.md. Flagged words are in FLAGGED, each with the wording to use; ALLOWED holds the few
phrases in which one of them is right.
"""
import argparse
import pathlib
import re
import subprocess
import sys

FLAGGED = {
    r"behind": "after, past, following",
    r"in front of": "before",
    r"beside": "next to, along with, compared with",
    r"by turns": "alternating",
    r"go(?:es)? on": "continues",
    r"whoever": "the caller, the reader",
    r"somebody|nobody": "name the subject",
    r"made again": "recomputed",
    r"shar(?:ed|es|ing) out": "sharded, split",
    r"the card": "GPU",
    r"multiprocessors?": "SM",
    r"page-locked": "pinned",
    r"second-level cache": "L2",
    r"products? of (?:experts|float8|bf16|blockwise|two of its|the head)|(?:grouped|blockwise|MX|matrix) products?": "GEMM",
    r"house": "project",
    r"rooms?": "folder, space",
}
ALLOWED = [r"room for", r"model'?s? card", r"go(?:es)? on (?:the|a|one) (?:disk|device|line)", r"chat room"]
WORD = re.compile("|".join(rf"(?P<w{i}>\b(?:{pattern})\b)" for i, pattern in enumerate(FLAGGED)), re.IGNORECASE)
ALLOW = re.compile("|".join(ALLOWED), re.IGNORECASE)
TOKEN = re.compile(
    r'R"(?P<tag>[^()\s\\]*)\((?:.|\n)*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\''
    r"|//[^\n]*|/\*(?:.|\n)*?\*/")
SOURCES = (".h", ".cpp", ".cu", ".cuh")


def tracked(root):
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                           capture_output=True, check=True).stdout.decode().split("\0")
    return [n for n in names if n and (root / n).is_file()]


def parts_of(path, text):
    """(kind, line, text) of the comments and string literals of a source, or of the prose of a page."""
    if not path.endswith(SOURCES):
        code = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                code = not code
            elif not code:
                yield "prose", number, re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line)
        return
    for match in TOKEN.finditer(text):
        token = match.group()
        kind = "comment" if token.startswith(("//", "/*")) else "message" if token[0] in 'R"' else None
        first = text.count("\n", 0, match.start()) + 1
        for offset, line in enumerate(token.splitlines() if kind else []):
            yield kind, first + offset, line.lstrip(" */") if kind == "comment" else line


def openings_of(path, text):
    """(line, finding) of a header without an opening comment, and of comments that begin with "of" or "those"."""
    lines = text.splitlines()
    if path.endswith((".h", ".cuh")):
        first = next((line for line in lines if line.strip() and not line.startswith("#pragma once")), "")
        if not first.startswith(("//", "/*")):
            yield 1, "header without an opening comment"
    last = -1  # line of the comment before
    for match in TOKEN.finditer(text):
        if not match.group().startswith(("//", "/*")):
            continue
        number = text.count("\n", 0, match.start())
        continues = number == last + 1 and lines[number].lstrip().startswith("//")
        last = number + match.group().count("\n")
        word = re.match(r"(of|those)\b", match.group().lstrip("/* "), re.IGNORECASE)
        if word and not continues:
            yield number + 1, f"comment begins with '{word.group()}'"


def wanted(name, kind):
    if name.startswith(("docs/lab/", "tests/golden/", "tests/data/chat_templates/")) or name.endswith("/glossary.md"):
        return False
    # Literals of tests are data.
    return kind != "message" or not name.startswith("tests/")


def terms():
    glossary = pathlib.Path(__file__).resolve().parent.parent / "docs/glossary.md"
    if not glossary.exists():
        glossary = glossary.parent / "reference/glossary.md"
    names = set()
    for row in re.findall(r"^\| ([^|]+) \|", glossary.read_text(), re.MULTILINE)[1:]:
        for name in re.split(r" / |\(|\)", row):
            if name.strip() and not name.startswith("-"):
                names.add(name.strip())
    return re.compile("|".join(rf"\b{re.escape(n)}(?:s|es)?\b" for n in sorted(names, key=len, reverse=True)), re.IGNORECASE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--openings", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    if args.openings:
        for name in tracked(args.root):
            if name.endswith(SOURCES):
                for number, finding in openings_of(name, (args.root / name).read_text(errors="replace")):
                    print(f"{name}:{number}: {finding}")
        return
    term = terms()
    lines, words, found, flagged = 0, {}, {}, {}
    findings, openings = 0, {"header": 0, "comment": 0}
    for name in tracked(args.root):
        if not name.endswith((*SOURCES, ".md")) or name == "CHANGELOG.md" and not args.check:
            continue
        text = (args.root / name).read_text(errors="replace")
        if name.endswith(SOURCES) and not name.startswith("tests/"):
            lines += text.count("\n")
        for _, finding in openings_of(name, text) if name.endswith(SOURCES) and not args.check else []:
            openings[finding.split()[0]] += 1
        for kind, number, part in parts_of(name, text):
            if not wanted(name, kind):
                continue
            group = "tests" if name.startswith("tests/") else kind
            clean = ALLOW.sub(" ", part)
            hits = list(WORD.finditer(clean))
            words[group] = words.get(group, 0) + len(re.findall(r"[A-Za-z][A-Za-z'-]*", part))
            found[group] = found.get(group, 0) + len(term.findall(part))
            flagged[group] = flagged.get(group, 0) + len(hits)
            for hit in hits if args.check else []:
                use = list(FLAGGED.values())[int(hit.lastgroup[1:])]
                print(f"{name}:{number}: '{hit.group()}' (write: {use})")
                findings += 1
    if args.check:
        sys.exit(1 if findings else 0)
    print(f"comments: {1000 * words['comment'] / lines:.0f} words a 1,000 lines ({words['comment']} words, {lines} lines)")
    print(f"headers without an opening comment: {openings['header']}; "
          f"comments that begin with 'of' or 'those': {openings['comment']}")
    print("| text | words | glossary terms a 1,000 words | flagged words a 1,000 words |\n|---|---|---|---|")
    for group, count in words.items():
        print(f"| {group} | {count} | {1000 * found[group] / count:.1f} | {1000 * flagged[group] / count:.2f} |")


if __name__ == "__main__":
    main()
