#pragma once
// Dataset of weighted paths (config section data).

#include <memory>
#include <string>
#include <vector>

#include "data/sampling/dataset.h"
#include "data/text/data_files.h"
#include "data/text/text_cache.h"

namespace quench {

// Files with one weight: one stream, whose epoch visits every row once.
struct DataSourceSpec {
  std::vector<std::string> paths;  // files, folders or patterns, in this order
  double weight = 1;               // in rows
};

// Sources, format, packing and order of a dataset.
struct DatasetSpec {
  std::vector<DataSourceSpec> sources;
  DataSplit split = DataSplit::train;
  // One of data_format_names(). Automatic: text or record format by first bytes or name, else token format by first
  // bytes.
  std::string format = "auto";
  std::uint64_t vocab_size = 0;          // exclusive
  const Tokenizer* tokenizer = nullptr;  // for text, and against shards of another tokenizer; null: tokens only
  std::optional<std::int32_t> eos_id{};  // separator in token files without a document table; default: the tokenizer's
  PackingOptions packing{};
  SamplerOptions sampler{};
  TextCacheOptions text{};  // `text.reader.format` is `format`
  // Validates token files at open (TokenSourceOptions::checks).
  ValidationCache* checks = nullptr;
};

// With both files of Megatron-LM pairs.
[[nodiscard]] std::vector<std::filesystem::path> source_files(const std::vector<std::string>& patterns,
                                                              DataSplit split = DataSplit::train);

// A weight applies to all files of its source. Throws bad_config for text without a tokenizer, for text and token files
// of one folder or pattern, and for shards of `quench tokenize` that hold records of another kind than
// packing.answers.
[[nodiscard]] std::shared_ptr<const Dataset> open_dataset(const DatasetSpec& spec);

// Training data without the records that are held out, and those.
struct HeldOutData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // every row once, in order
  std::uint64_t records = 0, held_out = 0;
};
// Records of all sources held out (split_documents()). Throws bad_config also for a source without other records.
[[nodiscard]] HeldOutData open_held_out(const DatasetSpec& spec, double share);

// Per file, path and source: tokens, rows, share, losses.
[[nodiscard]] std::string describe(const Dataset& dataset);

}  // namespace quench
