"""Start of the wheel's program, without the module."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "quench" / "bin" / "quench"
    # Commands that it prints begin with the name that it was called by.
    os.execve(program, sys.argv, {**os.environ, "QUENCH_STARTED_AS": sys.argv[0]})
