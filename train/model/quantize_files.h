#pragma once
// Quantization of the files of a folder, tensor by tensor, of any architecture: no model is made.

#include <filesystem>

#include "train/model/save_target.h"

namespace quench {

// Files that quantize_files() wrote.
struct QuantizedFiles {
  std::int64_t quantized = 0, kept = 0;                         // tensors
  std::uint64_t source_bytes = 0, bytes = 0;                    // weights files
  std::vector<std::pair<std::string, std::string>> unfit = {};  // weights that stay, and why: shapes, no finite values
};

// Rounds (RTN) the matrices NAME.weight of a safetensors folder to the target's scheme, in format compressed-tensors,
// and copies every other tensor and file as it is. Embeddings and heads (by name, or with vocab_size rows), routers and
// the section's exclusions stay. Memory: the largest rounded matrix three times and 256 MiB. Throws bad_config for
// members of `target` that need a model and for a quantized folder, unsupported where tied embeddings cannot be told
// from linear layers; the target is then unchanged.
QuantizedFiles quantize_files(const std::filesystem::path& folder, const SaveTarget& target);

}  // namespace quench
