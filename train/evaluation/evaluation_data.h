#pragma once
// Tokenized evaluation documents from text, records, token files.

#include <functional>
#include <string>
#include <vector>

#include "data/text/data_files.h"
#include "data/text/document_reader.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nn/spec/model_config.h"
#include "train/evaluation/perplexity.h"
#include "train/evaluation/scored_text.h"

namespace quench {

struct EvaluationData {
  std::vector<std::string> files;  // globs and folders
  DataSplit split = DataSplit::validation;
  // One of data_format_names(). Automatic: by the first bytes or the file name.
  std::string format = "auto";
  ReaderOptions reader{};  // `format` takes precedence over its format
  // Adds the tokenizer's special tokens to texts, unless they begin with the prefix token's text
  // (lm-evaluation-harness).
  bool special_tokens = true;
  // For errors on text input.
  std::string no_tokenizer = no_tokenizer_text();
  // Polled after each document; true stops reading.
  std::function<bool()> enough = {};
};

// Every document, token files last. Chats and token records keep their target masks. Token files need no tokenizer;
// with one, their text is decoded. Throws readers' errors, bad_config for text without a tokenizer.
void read_evaluation_data(const EvaluationData& data, const Tokenizer* tokenizer, const nn::ModelConfig& model,
                          const std::function<void(const ScoredDocument&)>& each);

}  // namespace quench
