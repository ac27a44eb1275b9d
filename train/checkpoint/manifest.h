#pragma once
// manifest.json of a checkpoint: location of every tensor, hashes of all bytes.
//
// Begins with {"manifest_xxh3": "<16 hex digits>": XXH3-64 of the file with those digits zero, verified before parsing.
// A data file is covered by its header hash and the hashes of its shards, which tile the rest: any flipped bit is
// detected.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Rows of a tensor in one data file, or a part of their columns.
struct ShardRecord {
  int file = 0;  // in Manifest::files
  ShardSlice slice;
  std::uint64_t offset = 0;  // bytes
  std::uint64_t size = 0;    // bytes
  std::uint64_t xxh3 = 0;    // hash of those bytes
  ShardSlice columns{};      // length 0: all
};

struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;                      // global
  std::vector<ShardRecord> shards;  // by ascending row, then column; tile the tensor

  [[nodiscard]] std::int64_t rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
};

struct DataFileRecord {
  std::string name;               // relative to the checkpoint folder
  int rank = 0;                   // that wrote it
  std::uint64_t size = 0;         // bytes
  std::uint64_t header_size = 0;  // bytes before tensor data
  std::uint64_t header_xxh3 = 0;
};

struct Manifest {
  static constexpr int kFormatVersion = 2;  // 1: without shards of columns
  static constexpr std::string_view kFileName = "manifest.json";
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{512} << 20;
  static constexpr std::size_t kMaxTensors = 1'000'000;

  std::string save_uuid;  // one per save, also in every data file
  int world_size = 1;
  CheckpointState state;
  std::vector<DataFileRecord> files;
  std::vector<TensorRecord> tensors;

  // Throws corrupt naming `source` and the fault; unsupported for a newer format version. Pure function; fuzz target.
  [[nodiscard]] static Manifest parse(std::string_view text, std::string_view source);

  // Throws invalid_argument for a manifest that parse() would reject.
  [[nodiscard]] std::string dump() const;
};

// XXH3-64 with the hash field, which must exist, zero.
[[nodiscard]] std::uint64_t manifest_hash(std::string_view text);
// Last step of dump(); also for the fuzzer.
void stamp_manifest_hash(std::string& text);

// "config_xxh3": XXH3-64 of the one-line JSON text.
[[nodiscard]] std::uint64_t config_hash(const Json& config);

// Shape of the rows of a shard that has these columns.
[[nodiscard]] Shape shape_of_columns(Shape shape, ShardSlice columns);

// Throws invalid_argument for a fraction of a byte or overflow.
[[nodiscard]] std::uint64_t row_bytes(const Shape& shape, DType dtype, std::int64_t rows);

}  // namespace quench
