#!/usr/bin/env python3
"""Records what Transformers renders of channels.jinja and turns.jinja, templates with the constructs of gpt-oss's and of
Gemma's: channels.json and turns.json beside this file. A case whose text is null is refused by the template.

  make_constructs.py

Needs transformers and jinja2 from PyPI.
"""
import datetime
import json
import pathlib

import jinja2
import transformers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parent
DATE = "2024-07-26"
TOOLS = [
    {"type": "function", "function": {"name": "now", "description": "The time."}},
    {"type": "function", "function": {
        "name": "weather", "description": "The weather of a \"place\" \u2600.",
        "parameters": {"type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "A city"}, "days": {"type": "integer", "default": 1},
            "units": {"type": "string", "enum": ["C", "F"], "default": "C"}, "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}}, "numbers": {"type": "array", "items": {"type": "integer"}},
            "either": {"oneOf": [{"type": "string"}, {"type": "number"}]}, "maybe": {"type": ["string", "null"]},
            "where": {"type": "object", "properties": {"x": {"type": "number", "description": "m"}, "y": {"type": "number"}}},
            "rows": {"type": "array", "items": {"type": "object"}}, "free": {}, "note": {"type": "string", "nullable": True},
            "mode": {"type": "string", "default": "fast"}}}}},
]
USER = {"role": "user", "content": "Weather in Z\u00fcrich?"}
CALL = {"role": "assistant", "content": None, "thinking": "I ask.", "tool_calls": [
    {"type": "function", "function": {"name": "weather", "arguments": {"place": "Z\u00fcrich", "days": 2, "exact": None}}}]}
RESULT = {"role": "tool", "content": "{\"temperature\": 21}"}
FINAL = {"role": "assistant", "content": "21 \u00b0C.", "thinking": "Done."}
PLAIN = {"role": "assistant", "content": "Sure."}
CHANNELS = {
    "question and answer": ([USER, PLAIN], None, {}),
    "developer": ([{"role": "developer", "content": "Be brief.\n"}, USER, FINAL], None, {}),
    "system": ([{"role": "system", "content": "Be brief."}, USER, PLAIN, {"role": "user", "content": "And now?"}, FINAL], None, {}),
    "call and result": ([USER, CALL, RESULT, FINAL], TOOLS, {}),
    "call at the end": ([{"role": "developer", "content": "Call."}, USER, CALL], TOOLS, {}),
    "call with content": ([USER, {**CALL, "thinking": "", "content": "A moment."}, RESULT], TOOLS, {}),
    "two calls": ([USER, CALL, RESULT, CALL, RESULT, FINAL, USER, PLAIN], TOOLS, {}),
    "arguments of the template": ([USER, PLAIN], None, {"identity": "You are terse.", "effort": "low", "builtin": ["python", "browser"]}),
    "a channel in a text": ([USER, {"role": "assistant", "content": "a <|channel|> b"}], None, {}),
    "a result without a call": ([USER, RESULT, PLAIN], TOOLS, {}),
}
TURNS = {
    "question and answer": ([USER, PLAIN], None, {}),
    "white space": ([{"role": "user", "content": " \n\u3000Q\t"}, {"role": "assistant", "content": "\u00a0 A \n"}], None, {}),
    "system": ([{"role": "system", "content": " Be brief. "}, USER, PLAIN, {"role": "user", "content": "And now?"}, PLAIN], None, {}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": " What is it? "}]}, PLAIN], None, {}),
    "two questions": ([USER, USER, PLAIN], None, {}),
    "a result": ([USER, PLAIN, RESULT, PLAIN], None, {}),
}


class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


def main():
    chat_template_utils.datetime = Then
    for name, titles in {"channels": CHANNELS, "turns": TURNS}.items():
        template = chat_template_utils._compile_jinja_template((HERE / f"{name}.jinja").read_text())
        cases = []
        for title, (messages, tools, arguments) in titles.items():
            for prompt in (False, True):
                try:
                    text = template.render(messages=messages, tools=tools, add_generation_prompt=prompt, bos_token="<bos>",
                                           **arguments)
                except jinja2.exceptions.TemplateError:
                    text = None
                case = {"title": title, "messages": messages, "for_generation": prompt, "text": text}
                if tools:
                    case["tools"] = tools
                if arguments:
                    case["chat_template_kwargs"] = arguments
                cases.append(case)
        versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
        figures = {"versions": versions, "date": DATE, "cases": cases}
        (HERE / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
