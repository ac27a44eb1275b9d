#pragma once
// From a checkpoint or model folder to a new folder: what the verbs export and quantize have in common.

#include <string>

#include "apps/command.h"
#include "apps/options/quantization_options.h"

namespace quench {

struct ExportOptions {
  std::string source;
  std::string output;
  std::string format;
  std::string dtype = "auto";
  std::string reader;  // a name of folder_readers(); empty: any
  std::string tokenizer;
  std::string sparsity;  // that weights are pruned to before; empty: none
  double max_shard_gb = 5;
  bool overwrite = false;
  bool json = false;
  std::string device = "cpu";
  std::vector<std::string> perplexity;  // files that the model's perplexity is measured on
  QuantizationOptions quantization;

  // All options but the one that names the source.
  void add_to(const Command& verb);
};

// Writes the folder and prints what was done. Throws bad_config before the weights are read where that is possible.
void run_export(const ExportOptions& options);

}  // namespace quench
