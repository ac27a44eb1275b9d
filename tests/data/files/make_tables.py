#!/usr/bin/env python3
"""Writes the Parquet and Arrow files of the tests with pyarrow, and the JSON lines that each must read as.

Usage: make_tables.py tests/data/files/tables      (pyarrow 26.0.1)
"""
import datetime
import decimal
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
        if name == "when" and value is not None:
            value = value.isoformat() if value.microsecond else value.date().isoformat()
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

# Times and decimals, in the arguments of a call and alone: as text in ISO 8601, midnight as the date that it was written as.
call = {"function": {"name": "book", "arguments": {"berth": "B4", "from": "2026-05-02T08:00:00", "until": "2026-05-03"}}}
rows = [{"messages": [{"role": "user", "content": "Book"}, {"role": "assistant", "content": "", "tool_calls": [call]}]}]
write_lines("call.jsonl", rows)
arguments = pa.struct([("berth", pa.string()), ("from", pa.timestamp("ms")), ("until", pa.timestamp("ms"))])
function = pa.struct([("function", pa.struct([("name", pa.string()), ("arguments", arguments)]))])
message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(function))])
when = {key: datetime.datetime.fromisoformat(call["function"]["arguments"][key]) for key in ("from", "until")}
call["function"]["arguments"].update(when)
pq.write_table(pa.Table.from_pylist(rows, pa.schema([("messages", pa.list_(message))])), os.path.join(folder, "call.parquet"))

day, hours = 86400, 3600
times = {
    "stamp_s": (pa.array([1777708800, -1, None], pa.timestamp("s")), ["2026-05-02T08:00:00", "1969-12-31T23:59:59", None]),
    "stamp_ms": (pa.array([250, -day * 1000, None], pa.timestamp("ms")), ["1970-01-01T00:00:00.250", "1969-12-31", None]),
    "stamp_ns": (pa.array([1, 1000, None], pa.timestamp("ns")),
                 ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000001", None]),
    "utc": (pa.array([0, 1, None], pa.timestamp("us", "UTC")),
            ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z", None]),
    "offset": (pa.array([0, -day * 1000, None], pa.timestamp("ms", "-01:30")),
               ["1969-12-31T22:30:00-01:30", "1969-12-30T22:30:00-01:30", None]),
    "zone": (pa.array([0, 8 * hours * 1000, None], pa.timestamp("ms", "Europe/Oslo")),
             ["1970-01-01T00:00:00Z", "1970-01-01T08:00:00Z", None]),
    "date": (pa.array([20575, -719162, None], pa.date32()), ["2026-05-02", "0001-01-01", None]),
    "date_ms": (pa.array([20575 * day * 1000, -day * 1000, None], pa.date64()), ["2026-05-02", "1969-12-31", None]),
    "time_s": (pa.array([0, day - 1, None], pa.time32("s")), ["00:00:00", "23:59:59", None]),
    "time_us": (pa.array([1500000, 1, None], pa.time64("us")), ["00:00:01.500", "00:00:00.000001", None]),
    "span": (pa.array([day + 2 * hours + 183, -1, None], pa.duration("s")), ["P1DT2H3M3S", "-P0DT0H0M1S", None]),
    "span_ms": (pa.array([1500, 0, None], pa.duration("ms")), ["P0DT0H0M1.500S", "P0DT0H0M0S", None]),
    "price": (pa.array([decimal.Decimal("12.50"), decimal.Decimal("-0.07"), None], pa.decimal128(10, 2)),
              ["12.50", "-0.07", None]),
    "wide": (pa.array([decimal.Decimal("1" + "0" * 59 + "7"), decimal.Decimal(-1), None], pa.decimal256(70, 0)),
             ["1" + "0" * 59 + "7", "-1", None]),
}
table = pa.table({"nested": pa.StructArray.from_arrays([values for values, _ in times.values()], list(times))})
write_lines("times.jsonl", [{"nested": {name: texts[i] for name, (_, texts) in times.items() if texts[i] is not None}}
                            for i in range(3)])
pq.write_table(table, os.path.join(folder, "times.parquet"))
write_stream("times.arrow", table)
write_stream("late.arrow", pa.table({"when": pa.array([2**62, 0], pa.timestamp("s"))}))
pairs = pa.array([[("a", 1), ("b", None)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
write_stream("map.arrow", pa.table({"map": pairs}))
# Bytes that are no text, in a message and in a column of their own.
turn = pa.struct([("role", pa.string()), ("content", pa.binary())])
rows = [{"text": str(i), "image": {"bytes": image}, "messages": [{"role": "user", "content": image}]}
        for i, image in enumerate((b"text", b"\xff\xd8"))]
pq.write_table(pa.Table.from_pylist(rows, pa.schema([("text", pa.string()), ("image", pa.struct([("bytes", pa.binary())])),
                                                     ("messages", pa.list_(turn))])), os.path.join(folder, "bytes.parquet"))
unions = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
write_stream("union.arrow", pa.table({"text": ["a", "b"], "mixed": pa.StructArray.from_arrays([unions], ["union"])}))

# Hostile and unlucky files. Indices of a dictionary: rows of one value are one run, the width of the index and the index.
words = pa.DictionaryArray.from_arrays(pa.array([1] * 40, pa.int32()), ["alpha", "beta", "gamma"])
lists = pa.ListArray.from_arrays(pa.array(range(0, 41, 4), pa.int32()), words)
for name, column in {"dictionary": words, "dictionary-list": lists,
                     "dictionary-struct": pa.StructArray.from_arrays([words], ["word"])}.items():
    path = os.path.join(folder, name + ".parquet")
    pq.write_table(pa.table({"text": column}), path, compression="none", write_statistics=False)
    data = open(path, "rb").read()
    run = bytes([2, 40 << 1 & 0x7F, 1])  # width 2, 40 times, index 1
    assert data.count(run) == 1
    for bad, forged in (("bit", bytes([2, run[1], 3])), ("heap", bytes([8, run[1], 200]))):
        open(os.path.join(folder, f"{name}-{bad}.parquet"), "wb").write(data.replace(run, forged))
    os.remove(path)
# A value that a dictionary repeats: 4 GB of text in a few kilobytes.
large = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), ["x" * 2**20])
pq.write_table(pa.table({"text": large}), os.path.join(folder, "repeated.parquet"), compression="zstd",
               store_schema=False)
pq.write_table(pa.table({"text": ["x" * 300 * 2**20]}), os.path.join(folder, "bomb.parquet"), compression="zstd")
write_stream("bomb.arrow", pa.table({"text": ["x" * 300 * 2**20]}), compression="zstd")
nulls = pa.ListArray.from_arrays(pa.array([0, 10**8], pa.int32()), pa.nulls(10**8))
write_stream("nulls.arrow", pa.table({"text": nulls}))
# Two columns of one name, and a part without rows.
twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
pq.write_table(twice, os.path.join(folder, "twice.parquet"))
write_stream("twice.arrow", twice)
fields = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], ["key", "key"])
write_stream("twice-nested.arrow", pa.table({"text": ["a"], "meta": fields}))
pq.write_table(pa.table({"text": pa.array([], pa.string())}), os.path.join(folder, "empty.parquet"))
