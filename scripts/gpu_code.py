#!/usr/bin/env python3
"""GPU code in a program or library, by architecture: machine code (SASS) and PTX, compressed as stored.
Usage: scripts/gpu_code.py FILE"""
import collections
import mmap
import struct
import sys

MAGIC = 0xBA55ED50  # container of one object file's code
PTX = 1


def entries(data):
    """(kind, architecture, bytes) of every entry in every container."""
    at = data.find(struct.pack("<I", MAGIC))
    while at >= 0:
        _, version, header, length = struct.unpack_from("<IHHQ", data, at)
        end = at + header + length
        if version != 1 or end > len(data):
            at = data.find(struct.pack("<I", MAGIC), at + 4)
            continue
        entry = at + header
        while entry < end:
            kind, _, head, payload = struct.unpack_from("<HHIQ", data, entry)
            yield kind, struct.unpack_from("<I", data, entry + 28)[0], payload
            entry += head + payload
        at = data.find(struct.pack("<I", MAGIC), end)


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        count, size = collections.Counter(), collections.Counter()
        for kind, architecture, payload in entries(data):
            count[kind, architecture] += 1
            size[kind, architecture] += payload
    if not count:
        print("no GPU code")
    for kind, architecture in sorted(count, key=lambda key: (key[1], key[0])):
        name = f"PTX compute_{architecture}" if kind == PTX else f"SASS sm_{architecture}"
        print(f"{name}: {count[kind, architecture]} modules, {size[kind, architecture] / 1e6:.1f} MB")
    return 0


sys.exit(main())
