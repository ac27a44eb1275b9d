#pragma once
// The documents of an evaluation as tokens: from texts, records and token files.

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
  std::vector<std::string> files;           // glob patterns and folders
  DataSplit split = DataSplit::validation;  // of folders
  // One of data_format_names() (data/sampling/data_formats.h). Automatic takes files by their first
  // bytes or names for text or records, else by their first bytes for tokens.
  std::string format = "auto";
  ReaderOptions reader{};  // its format is taken from `format`
  // A text gets what its tokenizer puts around one, unless it begins with the prefix token's text already: what
  // lm-evaluation-harness does unless told otherwise.
  bool special_tokens = true;
  // Why there is no tokenizer, for the error about text without one.
  std::string no_tokenizer = no_tokenizer_text();
  // Asked after each document: true ends the reading. Empty: all are read.
  std::function<bool()> enough = {};
};

// Hands on every document, those of token files last. Chats and token records keep their targets, as in training. Token
// files need no tokenizer; where there is one, it tells their text. Throws the readers' errors, bad_config for text
// without a tokenizer.
void read_evaluation_data(const EvaluationData& data, const Tokenizer* tokenizer, const nn::ModelConfig& model,
                          const std::function<void(const ScoredDocument&)>& each);

}  // namespace quench
