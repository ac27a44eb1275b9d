#pragma once
// manifest.json of a checkpoint: which tensor lies where, and a hash for every byte of every file.
//
// The file begins with {"manifest_xxh3": "<16 hex digits>"; the value is XXH3-64 of the file's bytes with those digits
// replaced by zeros, and is compared before anything is parsed. Every data file is covered by the hash of its header
// and the hashes of its shards, which tile the rest of it; so any changed bit in a checkpoint is found.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Rows of a tensor as stored in one data file.
struct ShardRecord {
  int file = 0;  // index into Manifest::files
  ShardSlice slice;
  std::uint64_t offset = 0;  // of the first byte, within the file
  std::uint64_t size = 0;    // bytes
  std::uint64_t xxh3 = 0;    // XXH3-64 of those bytes
};

struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;                      // global
  std::vector<ShardRecord> shards;  // by ascending row; tile the tensor exactly

  [[nodiscard]] std::int64_t rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
};

struct DataFileRecord {
  std::string name;               // within the checkpoint's folder
  int rank = 0;                   // process that wrote it
  std::uint64_t size = 0;         // bytes
  std::uint64_t header_size = 0;  // bytes before the first tensor
  std::uint64_t header_xxh3 = 0;
};

struct Manifest {
  static constexpr int kFormatVersion = 1;
  static constexpr std::string_view kFileName = "manifest.json";
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{512} << 20;
  static constexpr std::size_t kMaxTensors = 1'000'000;

  std::string save_uuid;  // one per save, repeated in every data file
  int world_size = 1;
  CheckpointState state;
  std::vector<DataFileRecord> files;
  std::vector<TensorRecord> tensors;

  // Parses and checks the text of a manifest. Throws Error(corrupt) naming `source` and what is wrong, or
  // Error(unsupported) when a newer program wrote it. Pure function of its arguments, the fuzz target.
  [[nodiscard]] static Manifest parse(std::string_view text, std::string_view source);

  // The file's text. Throws invalid_argument when the manifest breaks the rules that parse checks.
  [[nodiscard]] std::string dump() const;
};

// XXH3-64 of the text with the manifest's hash field taken as zeros; the text must have that field.
[[nodiscard]] std::uint64_t manifest_hash(std::string_view text);
// Writes the hash into the field: what dump does last, and what a fuzzer does to reach past the hash.
void stamp_manifest_hash(std::string& text);

// Identity of a configuration in the manifest ("config_xxh3"): XXH3-64 of its one-line JSON text.
[[nodiscard]] std::uint64_t config_hash(const Json& config);

// Bytes of `rows` rows of a tensor. Throws invalid_argument when they are not whole bytes or overflow.
[[nodiscard]] std::uint64_t row_bytes(const Shape& shape, DType dtype, std::int64_t rows);

}  // namespace quench
