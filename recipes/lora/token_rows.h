#pragma once
// Trained rows of the embedding and of an untied head next to adapters: PEFT's trainable_token_indices.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/modules/embedding.h"
#include "nn/modules/linear.h"
#include "nn/modules/whole_rows.h"

namespace quench::recipes {

// Ids by module.
struct TokenIds {
  std::vector<std::int64_t> embedding;  // ids of a tied head too
  std::vector<std::int64_t> head;       // ids of an untied one
};

// Rows [tokens, hidden] that passes read in place of those of the frozen table while attached. A pass reads a copy of
// the table with the rows in it, made for each use, and its gradient has the table's size until the rows are taken from
// it.
class TokenRows {
 public:
  // `root` must outlive this; empty `ids`: none. Throws bad_config (lora.trainable_token_indices) for ids outside of
  // the vocabulary, repeated ones, a model without embedding, and ids of a tied head. Undefined until begin(), whole.
  TokenRows(nn::Module& root, TokenIds ids, const nn::ParameterOptions& parameters);
  ~TokenRows();
  TokenRows(const TokenRows&) = delete;
  TokenRows& operator=(const TokenRows&) = delete;

  // As SavedModules.
  void attach() const;
  void detach() const;
  void merge() const;
  void merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const;
  void begin(const nn::WholeRows& whole) const;

  // Embedding, then head; those with ids.
  struct Module {
    std::string name;
    std::vector<std::int64_t> ids;
    nn::Parameter* rows = nullptr;
  };
  [[nodiscard]] std::vector<Module> modules() const;

 private:
  class Table;
  struct Entry {
    std::string name;
    std::vector<std::int64_t> ids;
    nn::Embedding* embedding = nullptr;  // or head
    nn::Linear* head = nullptr;
    std::shared_ptr<Table> table{};
    // Null: not attached.
    mutable std::shared_ptr<const nn::EmbeddingKernel> embedding_base{};
    mutable std::shared_ptr<const nn::LinearKernel> head_base{};

    [[nodiscard]] nn::Parameter& original() const;
  };

  std::vector<Entry> entries_;
};

}  // namespace quench::recipes
