#pragma once
// A folder of a teacher's most probable tokens (target_shard.h), with targets.json: what they belong to. Written by
// `quench distill-targets`.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/sampling/loader.h"
#include "train/objectives/distillation/run/target_shard.h"

namespace quench {

inline constexpr std::string_view kTargetsFile = "targets.json";
inline constexpr std::string_view kTargetsRemedy = "quench distill-targets";  // followed by the run's config

struct TargetsFormat {
  std::int64_t k = 0;
  DType dtype = DType::f16;
  std::int64_t vocab = 0;
  std::string identity{};  // identity of teacher, tokenizer and data; empty: not compared
};

// Rows of a dataset, by source.
using RowSet = std::vector<std::vector<bool>>;
// Rows of the first `samples` in the dataset's order.
[[nodiscard]] RowSet rows_of_samples(const Dataset& data, std::uint64_t samples);

// "targets-000-00012.safetensors"
[[nodiscard]] std::string target_shard_name(int rank, int number);

// Thread-safe reads.
class StoredTargets {
 public:
  // All shards. Throws errors of TargetShard, and bad_config naming a shard of another identity.
  StoredTargets(std::filesystem::path folder, const TargetsFormat& format);

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const TargetsFormat& format() const noexcept { return format_; }
  [[nodiscard]] std::uint64_t row_count() const noexcept;
  [[nodiscard]] bool holds(std::size_t source, std::uint64_t row) const;
  // The first number from `from` on without a shard.
  [[nodiscard]] int next_shard(int rank, int from = 0) const;

  // Targets of a micro-batch of `data`: ids, log_probs [N,K] and tail [N] on the CPU, N = rows * length; unchanged
  // where the label is kIgnoreLabel. Throws bad_config for a row that is not stored, or stored for other tokens.
  void fill(const Dataset& data, const Batch& batch, const Tensor& ids, const Tensor& log_probs,
            const Tensor& tail) const;

 private:
  struct Place {
    std::uint64_t row = 0;
    std::uint32_t shard = 0, index = 0;
  };
  [[nodiscard]] const Place* find(std::size_t source, std::uint64_t row) const;

  std::filesystem::path folder_;
  TargetsFormat format_;
  std::vector<std::unique_ptr<TargetShard>> shards_;
  std::vector<std::vector<Place>> places_;  // by source, by row
};

}  // namespace quench
