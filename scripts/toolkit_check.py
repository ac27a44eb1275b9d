#!/usr/bin/env python3
"""Checks the CUDA sources of a configured build against headers and ptxas of an older toolkit (scripts/toolkit_check.sh).

Host files are compiled without code; .cu files to PTX, which is then declared as of the older toolkit and assembled."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

FOLDERS = ("core/cuda/", "distributed/nccl/")
# Headers that come from elsewhere on the machine.
INSTALLED = re.compile(r"/include/(cudnn|nccl)")


def run(command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def without_output(arguments):
    kept = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "-o":
            skip = True
        elif argument != "-c":
            kept.append(argument)
    return kept


def toolkit_headers(dependencies, include):
    """Headers of the installed toolkit that were read in place of the checked one's."""
    if not dependencies.exists():
        return []
    words = dependencies.read_text().replace("\\\n", " ").split()[1:]
    read = {os.path.realpath(word) for word in words if not word.startswith(include)}
    return sorted(path for path in read if "/cuda" in path and "/include/" in path and "/core/cuda/" not in path
                  and "/.deps/" not in path and not INSTALLED.search(path))


def check_file(entry, options):
    """Name of the source, failures, notes and number of PTX files."""
    source = pathlib.Path(entry["file"])
    name = str(source.relative_to(options.root))
    work = options.build / "check" / name
    work.mkdir(parents=True, exist_ok=True)
    for old in work.iterdir():
        old.unlink()
    dependencies = work / "dependencies"
    arguments = without_output(shlex.split(entry["command"]))
    if arguments[0].endswith("ccache"):
        arguments = arguments[1:]
    command = [arguments[0], f"-I{options.include}", *arguments[1:], "-MD", "-MF", str(dependencies)]
    device = source.suffix == ".cu"
    command += ["--keep", "--keep-dir", str(work), "-c", "-o", str(work / "object.o")] if device else ["-fsyntax-only"]
    if not device:
        command[1:2] = ["-isystem", str(options.include)]
    status, output = run(command, entry["directory"])
    if status != 0:
        return name, [output.strip()], [], 0
    failures = [f"reads {path} of the installed toolkit" for path in toolkit_headers(dependencies, str(options.include))]
    notes, count = [], 0
    for ptx in sorted(work.glob("*.ptx")):
        text = ptx.read_text()
        target = re.search(r"^\.target (\w+)", text, re.MULTILINE).group(1)
        ptx.write_text(re.sub(r"^\.version .*", f".version {options.ptx}", text, count=1, flags=re.MULTILINE))
        status, output = run([str(options.ptxas), "--warning-as-error", f"-arch={target}", "-m64", "--fmad", "false",
                              str(ptx), "-o", str(work / "code.cubin")], str(work))
        count += 1
        if status != 0:
            failures.append(f"{target}: ptxas: {output.strip()}")
        elif output.strip():
            lines = output.strip().splitlines()
            notes.append(f"{target}: ptxas says {len(lines)} times: {lines[0].split(' in the function')[0]}")
    for made in work.iterdir():
        if made != dependencies:
            made.unlink()
    return name, failures, notes, count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="configured with virtual architectures")
    parser.add_argument("--include", type=pathlib.Path, required=True, help="headers of the toolkit to check")
    parser.add_argument("--ptxas", type=pathlib.Path, required=True)
    parser.add_argument("--ptx", required=True, help="PTX version of that toolkit, e.g. 8.4")
    parser.add_argument("--files", default="", help="regular expression of the sources to check")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.root = pathlib.Path(__file__).resolve().parent.parent
    entries = json.loads((options.build / "compile_commands.json").read_text())
    entries = [e for e in entries if str(pathlib.Path(e["file"]).relative_to(options.root)).startswith(FOLDERS)]
    entries = [e for e in entries if re.search(options.files, e["file"])]
    if not entries:
        sys.exit(f"toolkit_check.py: {options.build} compiles no such file of {' or '.join(FOLDERS)}")
    failed, assembled = 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, failures, notes, count in pool.map(lambda entry: check_file(entry, options), entries):
            assembled += count
            failed += bool(failures)
            for line in failures:
                print(f"{name}: FAILED: {line}", flush=True)
            for line in notes:
                print(f"{name}: {line}", flush=True)
    print(f"toolkit_check.py: {len(entries)} files, {assembled} PTX files of version {options.ptx}; {failed} files failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
