"""Start of the wheel's program, without the module."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "quench" / "bin" / "quench"
    os.execv(program, [sys.argv[0], *sys.argv[1:]])
