#pragma once
// Construction of a Dataset from weighted paths (config section data).

#include <memory>
#include <string>
#include <vector>

#include "data/sampling/dataset.h"
#include "data/text/data_files.h"
#include "data/text/text_cache.h"

namespace quench {

struct DataSourceSpec {
  std::vector<std::string> paths;  // files or patterns, concatenated in this order
  double weight = 1;               // in rows
};

struct DatasetSpec {
  std::vector<DataSourceSpec> sources;
  DataSplit split = DataSplit::train;
  // One of data_format_names() (data/sampling/data_formats.h). Automatic: text or record format by first bytes or name,
  // else token format by first bytes.
  std::string format = "auto";
  std::uint64_t vocab_size = 0;          // exclusive upper bound of ids
  const Tokenizer* tokenizer = nullptr;  // for text, and to reject shards of another tokenizer; null: tokens only
  std::optional<std::int32_t> eos_id{};  // document separator in token files without a document table; default: the
                                         // tokenizer's
  PackingOptions packing{};
  SamplerOptions sampler{};
  TextCacheOptions text{};  // `text.reader.format` is set from `format`
  // If set, token files are fully validated at open (TokenSourceOptions::checks).
  ValidationCache* checks = nullptr;
};

// Files of a source's patterns and folders, including both files of each Megatron-LM pair.
[[nodiscard]] std::vector<std::filesystem::path> source_files(const std::vector<std::string>& patterns,
                                                              DataSplit split = DataSplit::train);

// A weight applies to all files of its source together. Throws bad_config for text without a tokenizer and for a source
// of mixed text and token files.
[[nodiscard]] std::shared_ptr<const Dataset> open_dataset(const DatasetSpec& spec);

// One line per file and source: tokens, rows, share of the mixture, losses.
[[nodiscard]] std::string describe(const Dataset& dataset);

}  // namespace quench
