"""The package's files without a module that the interpreter can load."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import quench


class PackageTest(unittest.TestCase):
    def message(self, *modules: str) -> str:
        """What `import quench` says of the package's Python files next to these modules."""
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "quench")
            package.mkdir()
            for path in pathlib.Path(quench.__file__).parent.glob("*.py"):
                shutil.copy(path, package)
            for name in modules:
                (package / name).touch()
            done = subprocess.run([sys.executable, "-c", "import quench"], cwd=folder, env={}, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1]

    def test_module_of_another_python_is_named(self):
        message = self.message("_quench.cpython-399-x86_64-linux-gnu.so")
        version = f"cpython {sys.version_info.major}.{sys.version_info.minor}"
        for part in ("ImportError: quench:", "_quench.cpython-399-x86_64-linux-gnu.so", version, "cp312-abi3"):
            self.assertIn(part, message)

    def test_absent_module_is_named(self):
        self.assertIn("QUENCH_PYTHON_MODULE=ON", self.message())

    def test_module_that_does_not_load_keeps_the_loaders_message(self):
        suffix = pathlib.Path(quench._quench.__file__).name
        self.assertIn("file too short", self.message(suffix))


if __name__ == "__main__":
    unittest.main()
