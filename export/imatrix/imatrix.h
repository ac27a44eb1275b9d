#pragma once
// Importance matrix of a model: mean squares of the inputs of its linear layers by column, under GGUF names, and the
// two forms of llama.cpp's imatrix files: GGUF, and the legacy form (.dat).

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace quench {

// Entry of one tensor; the experts of a projection are matrices of one tensor.
struct ImatrixEntry {
  std::vector<float> sums;    // squares of the inputs: [matrices * columns]
  std::vector<float> counts;  // inputs of each matrix; 0: no data

  [[nodiscard]] std::int64_t matrices() const { return static_cast<std::int64_t>(counts.size()); }
  [[nodiscard]] std::int64_t columns() const { return static_cast<std::int64_t>(sums.size() / counts.size()); }
};

struct Imatrix {
  std::map<std::string, ImatrixEntry, std::less<>> entries;  // by name: "blk.0.attn_q.weight"
  std::vector<std::string> datasets;
  std::int64_t chunks = 0;      // sequences of the data
  std::int64_t chunk_size = 0;  // tokens of a sequence; 0: unknown (legacy form)
};

// Either form, by its first bytes. Finite sums and counts of at least 0, and data for every tensor. The legacy form has
// one count for all experts. Throws not_found, io, or corrupt naming the file and entry.
[[nodiscard]] Imatrix read_imatrix(const std::filesystem::path& file);

// GGUF form, as llama-imatrix writes it and llama-quantize reads it. Replaces `file` when complete.
void write_imatrix(const Imatrix& matrix, const std::filesystem::path& file);

}  // namespace quench
