#pragma once
// Kind of a file by its first bytes, for error messages.

#include <string_view>

namespace quench {

// Kind of a file by its first few hundred bytes, with advice, to complete "this is ...". Empty if unknown, and for
// safetensors.
[[nodiscard]] std::string_view recognise_file(std::string_view front) noexcept;

// For formats whose other bytes may be anything. Throws corrupt "<name>: this is a Git LFS pointer, ...".
void refuse_lfs_pointer(std::string_view name, std::string_view front);

}  // namespace quench
