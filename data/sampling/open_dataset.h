#pragma once
// From a list of weighted paths to a Dataset: the data section of a run.

#include <memory>
#include <string>
#include <vector>

#include "data/sampling/dataset.h"
#include "data/text/data_files.h"
#include "data/text/text_cache.h"

namespace quench {

struct DataSourceSpec {
  std::vector<std::string> paths;  // files or patterns, read as one stream in this order
  double weight = 1;               // of rows (data/sampling/sampler.h)
};

struct DatasetSpec {
  std::vector<DataSourceSpec> sources;
  DataSplit split = DataSplit::train;  // of sources that are folders
  // One of data_format_names() (data/sampling/data_formats.h). Automatic takes files by their first
  // bytes or names for text or records, else by their first bytes for tokens.
  std::string format = "auto";
  std::uint64_t vocab_size = 0;          // of the model; ids must be below it
  const Tokenizer* tokenizer = nullptr;  // for text, and to refuse shards of another tokenizer; null: tokens only
  std::optional<std::int32_t> eos_id{};  // document end in token files without a document table; else the tokenizer's
  PackingOptions packing{};
  SamplerOptions sampler{};
  TextCacheOptions text{};  // `text.reader.format` is taken from `format`
  // When set, token files are checked from end to end when they are opened (TokenSourceOptions::checks).
  ValidationCache* checks = nullptr;
};

// The files that the patterns and folders of a source name, with the other file of each Megatron-LM pair.
[[nodiscard]] std::vector<std::filesystem::path> source_files(const std::vector<std::string>& patterns,
                                                              DataSplit split = DataSplit::train);

// A weight belongs to all files of its source together. Throws bad_config for text without a tokenizer and for a source
// that mixes text and token files.
[[nodiscard]] std::shared_ptr<const Dataset> open_dataset(const DatasetSpec& spec);

// The data plan, one line a file and one a source: tokens, rows, share of the mix, and what is left out.
[[nodiscard]] std::string describe(const Dataset& dataset);

}  // namespace quench
