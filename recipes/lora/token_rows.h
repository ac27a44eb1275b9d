#pragma once
// Trained rows of the embedding next to adapters: PEFT's trainable_token_indices.

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/embedding.h"
#include "nn/whole_rows.h"

namespace quench::recipes {

// Rows [tokens, hidden] that passes read in place of those of the frozen table while attached; a tied head too. A pass
// reads a copy of the table with the rows in it, made for each use, and its gradient has the table's size until the
// rows are taken from it.
class TokenRows {
 public:
  // `root` must outlive this; `ids` empty: none. Throws bad_config (lora.trainable_token_indices) for ids outside of
  // the vocabulary, repeated ones, and a model without embedding. Undefined until begin(), whole.
  TokenRows(nn::Module& root, std::vector<std::int64_t> ids, const nn::ParameterOptions& parameters);
  ~TokenRows();
  TokenRows(const TokenRows&) = delete;
  TokenRows& operator=(const TokenRows&) = delete;

  // As SavedModules.
  void attach() const;
  void detach() const;
  void merge() const;
  void merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const;
  void begin(const nn::WholeRows& whole) const;

  [[nodiscard]] const std::vector<std::int64_t>& ids() const noexcept { return ids_; }
  [[nodiscard]] nn::Parameter* rows() const noexcept;  // null: none

 private:
  class Table;

  std::vector<std::int64_t> ids_;
  nn::Embedding* embedding_ = nullptr;
  std::shared_ptr<Table> table_;                               // null: none
  mutable std::shared_ptr<const nn::EmbeddingKernel> kernel_;  // of the embedding; null: not attached
};

}  // namespace quench::recipes
