#pragma once
// Folder of the shared library that holds this code, or of the program that it is linked into.

#include <filesystem>

namespace quench {

// Symbolic links resolved; empty if unknown.
[[nodiscard]] std::filesystem::path own_folder();

// Folder of the Python packages that this code was installed among (site-packages/quench/lib), or empty.
[[nodiscard]] std::filesystem::path python_packages();

}  // namespace quench
