#!/usr/bin/env python3
"""Input filter of scripts/api_docs.sh: prints a header with its plain `//` comments as Doxygen comments.

  doxygen_filter.py HEADER

Line numbers do not change. Rules:
- The comment after `#pragma once` documents the file, and a declaration without a comment that is named like the file.
- A comment before a declaration, or on its line, documents it; an overload right after it has the same documentation.
  So have consecutive constants declared `extern const`.
- `XArgs` without a comment are the arguments of the op x; a KernelSlot holds the op's kernels.
- An umbrella header (quench/*.h) defines the module of the headers that it includes.
"""
import pathlib
import re
import sys

DECLARES = re.compile(r"(?:^|\s)(?:namespace|class|struct|enum|union)\b|^extern\b")
NAME = re.compile(r"(?:class|struct|enum class|enum|using)\s+([A-Za-z_]\w*)|~?([A-Za-z_]\w*)\s*\(|([A-Za-z_]\w*)\s*(?:=|;|\{|\[)")
UMBRELLAS = pathlib.Path(__file__).resolve().parent.parent / "quench"


def escaped(text):
    """A comment's text, without meaning for Doxygen except `code` and lists."""
    text = re.sub(r"\s*NOLINT(?:\([^)]*\))?", "", text)
    text = re.sub(r"[\\@<>#%&]", lambda match: {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(match[0], "\\" + match[0]), text)
    return re.sub(r"`([^`]+)`", r"<tt>\1</tt>", text)


def split_comment(line):
    """(code, comment or None) of a line; // within a string is code."""
    match = re.match(r'((?:[^"/\']|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|/(?!/)|\')*?)\s*//\s?(.*)$', line)
    return (match[1], match[2]) if match else (line, None)


def flat(name):
    return name.replace("_", "").lower()


def name_of(declaration):
    declaration = re.sub(r"\[\[.*?\]\]|template <.*?>(?=\s*\w)|constexpr|QUENCH_HOST_DEVICE", "", declaration).strip()
    match = NAME.search(declaration)
    return next((group for group in match.groups() if group), "") if match else ""


def module_of(header):
    """The umbrella header's stem that includes `header` directly."""
    for umbrella in sorted(UMBRELLAS.glob("*.h")):
        if f'#include "{header}"' in umbrella.read_text():
            return umbrella.stem
    return "core" if header == "quench/version.h" else None


class Filter:
    def __init__(self, path):
        root = UMBRELLAS.parent
        self.header = str(path.resolve().relative_to(root))
        self.lines = path.read_text().splitlines()
        self.out = []
        self.scopes = []  # True: declarations, False: code
        self.file_comment = []

    def in_code(self):
        return not all(self.scopes)

    def track(self, code, statement):
        for character in re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "", code):
            if character == "{":
                self.scopes.append(bool(DECLARES.search(statement)) and "(" not in statement.split("{")[0].split(":")[0])
            elif character == "}" and self.scopes:
                self.scopes.pop()

    def run(self):
        umbrella = re.fullmatch(r"quench/(\w+)\.h", self.header)
        module = umbrella[1] if umbrella and umbrella[1] != "version" else None
        group = None if module else module_of(self.header)
        comment, previous, statement, begun = [], ("", []), "", 0
        i = 0
        if self.lines[0] == "#pragma once":
            i = 1
            while i < len(self.lines) and self.lines[i].startswith("//"):
                self.file_comment.append(escaped(self.lines[i][2:].strip()))
                i += 1
            first = f"/// \\defgroup {module} Module {module}" if module else "/// \\file"
            self.out = [first] + [f"/// {line}" for line in self.file_comment]
            if self.file_comment and self.lines[i:i + 1] == [""]:  # else Doxygen gives the comment to what follows
                self.out[-1] += " "
        for line in self.lines[i:]:
            code, text = split_comment(line)
            stripped = code.strip()
            if not stripped and text is not None and not self.in_code():  # a line of its own
                indent = len(line) - len(line.lstrip())
                if self.out and "///<" in self.out[-1] and indent > 2 * len(self.scopes):  # continues the line before
                    self.out.append(f"{code}{' ' * indent}///< {escaped(text)}")
                else:
                    comment.append(escaped(text))
                    self.out.append(f"{' ' * indent}/// {escaped(text)}")
                continue
            if not stripped:
                self.out.append(line if text is None or self.in_code() else "")
                comment, previous = [], ("", [])
                continue
            if re.match(r"namespace quench\b", stripped) and group:
                code = f"{code} /** \\addtogroup {group} */ /**@{{*/" if stripped.endswith("{") else code
                text = None
            elif stripped == "}" and text and text.startswith("namespace quench") and group:
                code, text = f"/**@}}*/ {code}", None
            elif stripped.startswith("}") and text and text.startswith("namespace"):
                text = None
            fresh = not statement
            inside = self.in_code()
            statement = f"{statement} {stripped}" if statement else stripped
            documentation = comment
            if fresh and not inside and not stripped.startswith(("#", "}", "public:", "private:", "protected:", "requires", "/**")):
                whole = statement
                name = name_of(whole)
                trailing = text if text is not None else None
                if not comment and trailing is None:
                    documentation = self.implied(name, whole, previous, code)
                    if documentation:
                        code = f"/** {' '.join(documentation)} */ {code}"
                own = documentation or ([escaped(trailing)] if trailing else [])
                previous = (name, own) if "(" in whole and not re.match(r"(?:class|struct)\b", whole) else ("", [])
                if stripped.startswith("extern const "):
                    previous = ("extern const", own)
            if text is not None and not inside and not self.after(code):
                comment_text = escaped(text)
                code = f"{code}  ///< {comment_text}" if comment_text else code
            self.out.append(code)
            self.track(stripped, statement)
            if stripped.endswith((";", "{", "}", ":", ",")) or stripped.startswith("#"):
                if not (stripped.endswith(",") and "(" in statement and statement.count("(") > statement.count(")")):
                    statement = ""
            comment = [] if not statement or not re.match(r"template\b", statement) else comment
        return "\n".join(self.out) + "\n"

    def after(self, code):
        """Whether the trailing comment stands after a line that declares nothing."""
        return code.strip() in ("}", "};", "public:", "private:", "protected:") or self.in_code()

    def implied(self, name, declaration, previous, code):
        if not name:
            return []
        if declaration.startswith("extern const ") and previous[0] == "extern const":
            return previous[1]
        if "KernelSlot<" in declaration and declaration.startswith("extern"):
            return ["Kernels of the op, by device type."]
        if name == previous[0] and previous[1] and "(" in declaration:
            return previous[1]
        if len(self.scopes) > 1 or code.startswith(" "):
            return []
        if flat(name) == flat(pathlib.Path(self.header).stem) and self.file_comment:
            return self.file_comment
        if re.match(r"struct \w+Args\b", declaration):
            op = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Args")).lower()
            return [f"Arguments of {op}()."]
        return []


if __name__ == "__main__":
    sys.stdout.write(Filter(pathlib.Path(sys.argv[1])).run())
