#!/usr/bin/env python3
"""Checks that every relative link and anchor in the Markdown pages of the source tree resolves.

Usage: check_links.py [PAGE ...]; without pages, those at the top of the source tree and below docs/.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)")


def prose(page):
    """Lines outside fenced blocks and code spans."""
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


def anchors(page):
    """Anchors of headings by GitHub's rule; a repeated heading gets -1, -2, ..."""
    seen, result = {}, set()
    for line in prose(page):
        heading = re.match(r"#{1,6} +(.*?)(?: +#+)? *$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def main():
    pages = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    pages = pages or sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
    links, findings = 0, []
    for page in pages:
        # Links may wrap over lines.
        text = re.sub(r"`[^`]*`", "", "\n".join(prose(page)))
        for target in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                findings.append(f"{page}: no such file: {target}")
            elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
                findings.append(f"{page}: no such heading: {target}")
    print(*findings, f"{len(pages)} pages, {links} links, {len(findings)} broken", sep="\n")
    return 1 if findings or not links else 0


if __name__ == "__main__":
    sys.exit(main())
