#pragma once
// Parts of a model that llama.cpp's gguf-split has cut: NAME-00001-of-00003.gguf has the metadata, all have tensors.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "export/formats/gguf/head_parser.h"

namespace quench {

struct GgufPartName {
  std::string model;  // NAME, with the folder
  std::int64_t number = 1, count = 1;

  [[nodiscard]] std::filesystem::path file(std::int64_t part) const;  // 1 to count
};
// Absent: by its name no part.
[[nodiscard]] std::optional<GgufPartName> gguf_part_name(const std::filesystem::path& file);

// File of a tensor (GgufEntry::part), of the model that begins with `first`.
[[nodiscard]] std::filesystem::path gguf_file_of(const std::filesystem::path& first, const GgufEntry& entry);

// Tensors of the other parts after those of `head`, which is of `first`; no-op for a whole model. `read`: head of a
// file. Throws bad_config unless `first` is the first part, not_found naming missing parts, corrupt for parts that are
// not of this model.
void add_gguf_parts(const std::filesystem::path& first, GgufHead& head,
                    GgufHead (*read)(const std::filesystem::path& file));

}  // namespace quench
