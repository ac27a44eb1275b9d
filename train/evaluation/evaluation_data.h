#pragma once
// Tokenized evaluation documents from text, records and token files.

#include <functional>
#include <string>
#include <vector>

#include "data/text/data_files.h"
#include "data/text/document_reader.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nn/model_config.h"
#include "train/evaluation/perplexity.h"
#include "train/evaluation/scored_text.h"

namespace quench {

struct EvaluationData {
  std::vector<std::string> files;  // glob patterns and folders
  DataSplit split = DataSplit::validation;
  // One of data_format_names() (data/sampling/data_formats.h). Automatic: text, records or tokens by the first bytes or
  // the file name.
  std::string format = "auto";
  ReaderOptions reader{};  // its format is overridden by `format`
  // Adds the tokenizer's special tokens to texts, except to texts that already begin with the prefix token's text
  // (lm-evaluation-harness default).
  bool special_tokens = true;
  // Reason for a missing tokenizer, for the error on text input.
  std::string no_tokenizer = no_tokenizer_text();
  // Polled after each document; true stops reading. Empty: read all.
  std::function<bool()> enough = {};
};

// Emits every document, those of token files last. Chats and token records keep their target masks, as in training.
// Token files need no tokenizer; with one, their text is decoded. Throws readers' errors, bad_config for text without a
// tokenizer.
void read_evaluation_data(const EvaluationData& data, const Tokenizer* tokenizer, const nn::ModelConfig& model,
                          const std::function<void(const ScoredDocument&)>& each);

}  // namespace quench
