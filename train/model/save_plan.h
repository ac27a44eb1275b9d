#pragma once
// Resolved SaveTarget.

#include <optional>

#include "core/number/sparsity_2_4.h"
#include "export/table/reader_table.h"
#include "train/model/save_target.h"

namespace quench {

struct SavePlan {
  SaveTarget target;
  ExportTarget place;
  const ExportFormat* format = nullptr;  // null: adapters alone
  const FolderReader* reader = nullptr;  // null: any
  std::optional<QuantizationRules> rules = {};
  std::optional<BitBudget> budget = {};  // the scheme of `rules` is its first candidate
  std::optional<Sparsity24> sparsity = {};
  std::optional<KvCacheScheme> kv_cache = {};
  std::shared_ptr<const CalibrationData> cache_data = {};  // for the scales of kv_cache
  std::function<double(nn::CausalLm&)> perplexity = {};

  [[nodiscard]] std::string key(std::string_view member) const;
  // The weights are written as they are opened.
  [[nodiscard]] bool keeps_weights() const;
};

// Throws as check_save_target().
[[nodiscard]] SavePlan plan_save(const SaveTarget& target, const std::vector<std::filesystem::path>& sources);

}  // namespace quench
