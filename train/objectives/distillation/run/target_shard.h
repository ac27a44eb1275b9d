#pragma once
// Files of a teacher's most probable tokens: targets-RRR-NNNNN.safetensors of rank RRR, with R rows of a dataset and M
// targets of K tokens:
//   rows       u64 [R,4]: source, row within it, first target, hash of ids and labels (hash_row)
//   ids        i32 [M,K], ascending within a target
//   log_probs  f16 or f32 [M,K]
//   tail       f32 [M]: log of the probability of all other tokens
//   checksums  u64 [R]: XXH3-64 of a row's ids, log_probs and tail
// Metadata name what the targets belong to: `targets`, a hash of teacher, tokenizer, data and keys, and for messages
// `teacher` and `tokenizer`.
// Targets of a row are its labels that are not kIgnoreLabel, in order.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/safetensors/safetensors.h"

namespace quench {

// Keys of the metadata.
inline constexpr const char* kShardIdentity = "targets";
inline constexpr const char* kShardTeacher = "teacher";
inline constexpr const char* kShardTokenizer = "tokenizer";

// Hash of ids and labels.
[[nodiscard]] std::uint64_t hash_row(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);

struct TargetRow {
  std::uint64_t source = 0, row = 0;
  std::uint64_t first = 0;  // target
  std::uint64_t hash = 0;
};

struct TargetValues {
  std::vector<std::int32_t> ids;  // [n,K]
  std::vector<float> log_probs;   // [n,K]
  std::vector<float> tail;        // [n]
};

// A shard in memory, written at once: absent or complete.
class TargetShardWriter {
 public:
  // `dtype`: f16 or f32. `names`: metadata.
  TargetShardWriter(std::int64_t k, DType dtype, std::map<std::string, std::string> names);

  void begin_row(std::uint64_t source, std::uint64_t row, std::uint64_t hash);
  // n targets of the current row: ids [n,K], log_probs [n,K], tail [n].
  void add(std::span<const std::int32_t> ids, std::span<const float> log_probs, std::span<const float> tail);

  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] std::uint64_t targets() const noexcept { return tail_.size(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  // Clears.
  void write(const std::filesystem::path& path);

 private:
  std::int64_t k_;
  DType dtype_;
  std::map<std::string, std::string> names_;
  std::vector<TargetRow> rows_;
  std::vector<std::int32_t> ids_;
  std::vector<float> log_probs_;
  std::vector<std::uint16_t> halves_;  // in place of log_probs_
  std::vector<float> tail_;
};

// Thread-safe reads.
class TargetShard {
 public:
  // Throws corrupt naming the file unless it holds `k` tokens a target in `dtype`, and errors of SafetensorsReader.
  TargetShard(const std::filesystem::path& path, std::int64_t k, DType dtype);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return reader_.path(); }
  // Value of the metadata; empty if absent.
  [[nodiscard]] std::string name(const char* key) const;
  [[nodiscard]] const std::vector<TargetRow>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::uint64_t targets(std::size_t row) const;
  // Throws corrupt for another checksum, ids that do not ascend below `vocab`, or values that are no log-probabilities.
  void read(std::size_t row, std::int64_t vocab, TargetValues& out) const;

 private:
  SafetensorsReader reader_;
  std::int64_t k_;
  DType dtype_;
  std::uint64_t count_ = 0;
  std::vector<TargetRow> rows_;
  std::vector<std::uint64_t> checksums_;
};

}  // namespace quench
