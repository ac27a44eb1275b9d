#!/usr/bin/env python3
"""Writes the Parquet and Arrow files of the tests with pyarrow, and the JSON lines that each must read as.

Usage: make_tables.py tests/data/files/tables      (pyarrow 26.0.1)
"""
import json
import os
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq

folder = sys.argv[1]

# Chats as Hub data sets have them: structs with all keys of any message, null where a message has none.
call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
chats = [
    {"id": 1, "messages": [{"role": "user", "content": "Weather in Oslo?"},
                           {"role": "assistant", "tool_calls": [call]},
                           {"role": "tool", "content": "3 °C", "name": "weather", "tool_call_id": "c1"},
                           {"role": "assistant", "content": "Three degrees."}], "source": "a"},
    {"id": 2, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 👋"},
                           {"role": "assistant", "content": "Hello\n\"you\""}], "source": None},
    {"id": 3, "messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}], "source": "b"},
]
message = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string()), ("tool_call_id", pa.string()),
                     ("tool_calls", pa.list_(pa.struct([("id", pa.string()), ("type", pa.string()),
                                                        ("function", pa.struct([("name", pa.string()),
                                                                                ("arguments", pa.string())]))])))])
schema = pa.schema([("id", pa.int64()), ("messages", pa.list_(message)), ("source", pa.string())])
table = pa.Table.from_pylist(chats, schema)


def write_lines(name, rows):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_stream(name, table, **options):
    with pa.OSFile(os.path.join(folder, name), "wb") as file:
        with pa.ipc.new_stream(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table, max_chunksize=2)


write_lines("chats.jsonl", chats)
pq.write_table(table, os.path.join(folder, "chats.parquet"), row_group_size=2)
for codec in ("zstd", "gzip", "brotli", "lz4", "none"):
    pq.write_table(table, os.path.join(folder, f"chats-{codec}.parquet"), compression=codec, data_page_version="2.0")
write_stream("chats.arrow", table)
write_stream("chats-zstd.arrow", table, compression="zstd")
pyarrow.feather.write_feather(table, os.path.join(folder, "chats.feather"), compression="lz4", chunksize=2)

# Every type that has a form in JSON.
types = {
    "null": pa.array([None, None, None], pa.null()),
    "bool": pa.array([True, None, False]),
    "int8": pa.array([-128, 0, 127], pa.int8()), "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "int64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()), "uint16": pa.array([65535, 1, 2], pa.uint16()),
    "half": pa.array([0.5, -2.0, None], pa.float16()), "float": pa.array([0.25, None, 1.5], pa.float32()),
    "double": pa.array([0.1, 1e300, -0.0]), "string": pa.array(["a", "", None]),
    "large": pa.array(["x" * 20, None, "é"], pa.large_string()), "bytes": pa.array([b"text", b"\xff\xfe", None]),
    "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "large_list": pa.array([["a"], None, ["b", "c"]], pa.large_list(pa.string())),
    "pair": pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float64(), 2)),
    "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": [{"c": "d"}]}],
                       pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
    "map": pa.array([[("k", 1), ("l", 2)], [], None], pa.map_(pa.string(), pa.int32())),
    "words": pa.array(["red", None, "red"]).dictionary_encode(),
    "when": pa.array([0, 1, None], pa.timestamp("us")),
}
values = pa.table(types)
rows = []
for i in range(3):
    row = {}
    for name, column in types.items():
        value = column[i].as_py()
        if name == "when":
            continue
        if name == "bytes":
            value = "text" if i == 0 else None
        if isinstance(value, bytes):
            value = value.decode()
        if name == "map" and value is not None:
            value = dict(value)
        if name == "struct" and value is not None:
            value = {key: member for key, member in value.items() if member is not None}
        row[name] = value
    rows.append(row)
write_lines("types.jsonl", rows)
pq.write_table(values, os.path.join(folder, "types.parquet"))
# An offset into the arrays, and types that Parquet has not.
views = values.append_column("view", pa.array(["short", "a text of more than twelve bytes", None], pa.string_view()))
write_lines("views.jsonl", [dict(row, view=views["view"][i].as_py()) for i, row in enumerate(rows)][1:])
write_stream("views.arrow", views.slice(1))

# Messages as JSON text, as the library datasets stores those whose arguments have no common type.
mixed = pa.list_(pa.json_())
rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [
    {"function": {"name": "f", "arguments": argument}}]}]} for argument in ({"x": 1}, {"y": [None, "z"]})]
write_lines("json.jsonl", rows)
storage = pa.array([[json.dumps(message) for message in row["messages"]] for row in rows], pa.list_(pa.string()))
texts = pa.Table.from_arrays([storage.cast(mixed)], ["messages"])
pq.write_table(texts, os.path.join(folder, "json.parquet"))
pq.write_table(texts, os.path.join(folder, "json-plain.parquet"), store_schema=False)
write_stream("json.arrow", texts)

# Columns with names of their own; a struct of lists, as older Hub data sets have chats.
write = lambda name, rows: pq.write_table(pa.Table.from_pylist(rows), os.path.join(folder, name))
write("questions.parquet", [{"question": f"Is {i} even?", "meta": {"answer": "yes" if i % 2 == 0 else "no"}, "text": "x"}
                            for i in range(4)])
write("lists.parquet", [{"messages": {"role": ["user", "assistant"], "content": ["a", "b"]}}])
