#pragma once
// Options shared by the verbs export and quantize: from a checkpoint or model folder to a new folder.

#include <string>

#include "apps/command.h"
#include "apps/options/quantization_options.h"
#include "train/model/save_target.h"
#include "train/model/weights_choice.h"

namespace quench {

struct ExportOptions {
  std::string source;
  std::string output;
  std::string format;
  std::string dtype = "auto";
  std::string reader;  // a name of folder_readers(); empty: any
  std::string tokenizer;
  std::string sparsity;                   // pruning before export; empty: none
  std::string kv_cache, kv_cache_scales;  // SaveTarget's
  double max_shard_gb = 5;
  bool overwrite = false, allow_requantize = false, rotate = false;
  bool json = false;
  std::string device = "cpu";
  std::string memory_limit;             // most GPU memory; empty: none
  std::vector<std::string> perplexity;  // files for the perplexity measurement
  std::optional<double> target_bits;
  std::string target_size;
  std::int64_t search_steps = SaveTarget().search_steps;
  std::string save_plan;
  QuantizationOptions quantization;
  WeightsChoice weights;

  // Adds all options except the source.
  void add_to(const Command& verb);
};

// The target that the options name.
[[nodiscard]] SaveTarget save_target(const ExportOptions& options);
// Writes the folder and prints a summary. Throws bad_config before reading weights where possible.
void run_export(const ExportOptions& options);

}  // namespace quench
