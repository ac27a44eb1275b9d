"""Message for an interpreter that finds no module of its kind in the package's folder."""

import pathlib
import sys


def message() -> str:
    folder = pathlib.Path(__file__).parent
    built = sorted(path.name for path in folder.glob("_quench.*so"))
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    if not built:
        return f"quench: no module in {folder}: install a wheel, or build it with -DQUENCH_PYTHON_MODULE=ON"
    return (f"quench: {folder} holds {', '.join(built)}, which this interpreter ({python}, {sys.executable}) does not load: "
            "install the wheel of this Python, quench_train-*-cp312-abi3-*.whl for CPython 3.12 and later")
