#pragma once
// Target of a saved model: its place, format and numbers.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/budget/bit_budget.h"
#include "export/rotate/rotate_model.h"
#include "export/table/unfit_scheme.h"
#include "train/config/sections/quantization_section.h"
#include "train/model_folder/model_folder.h"

namespace quench {

struct SaveTarget {
  std::filesystem::path path;             // folder, or with format "gguf" a file *.gguf; an earlier export is replaced
  bool overwrite = false;                 // into a folder with other files, replacing only those of the same names
  std::string format = "hf";              // a name of export_format_names(), or of kAdapterFormats: adapters alone
  QuantizationSection quantization = {};  // without a scheme: dense weights
  // Scheme of each layer by a budget (export/budget/bit_budget.h), one of the two; `quantization.scheme` then lists
  // candidates. Mean bits a weight; size of the weights files: "5GB", "800MiB".
  std::optional<double> target_bits = {};
  std::string target_size = {};
  std::int64_t search_steps = BitBudget().search_steps;  // trials of a budget's choice
  std::string save_plan = {};                            // file for the choice; empty: none
  std::string dtype = "auto";     // as opened; or f32, bf16, or f16 for weights that are not quantized
  std::string reader = {};        // a name of folder_readers(), which must run the model; empty: any
  bool allow_requantize = false;  // quantizes the dequantized values of a quantized model
  std::string kv_cache = {};  // KV cache of readers: a name of kv_formats(), with a format that stores it; empty: none
  std::string kv_cache_scales = {};  // a name of kv_scale_choices(); empty: the first
  std::string sparsity = {};         // pruning before, a name of recipes::sparsity_choices(); empty: none
  bool rotate = false;               // rotate_model() before
  std::string tokenizer = {};        // file or folder; empty: the model's
  std::int64_t max_shard_bytes = 5'000'000'000;
  std::vector<std::string> perplexity = {};  // data of perplexities for the report and the model card; empty: none
  // Name in messages of a member, or of one of `quantization`; unset: the member's own.
  std::function<std::string(std::string_view member)> key = {};
};

// Files and layers that Model::save() wrote.
struct SavedModel {
  std::filesystem::path path;
  std::string format;
  DType dtype = DType::f32;
  std::string scheme = {};                // scheme of the rules; empty: dense
  std::string kv_cache = {};              // KvCacheScheme::describe(); empty: none
  std::int64_t parameters = 0;            // 0 for adapters alone
  std::size_t adapted_layers = 0;         // number of layers, for adapters alone
  std::optional<UnfitScheme> unfit = {};  // layers that the scheme does not suit
  std::optional<SchemePlan> plan = {};    // choice by a budget
  std::optional<ModelRotation> rotation = {};
  ModelFolderReport report = {};
};

// {"output", "format", "dtype", "parameters", "scheme", "layers", "file_bytes", ...}; of adapters alone {"output",
// "format", "adapted_layers"}.
[[nodiscard]] Json to_json(const SavedModel& saved);

// Throws the errors of Model::save() that need no model: bad_config for unknown names, options that exclude each other,
// a format that no program can run, a path that may not be replaced. `sources`: inputs, which the path may not touch.
void check_save_target(const SaveTarget& target, const std::vector<std::filesystem::path>& sources = {});

}  // namespace quench
