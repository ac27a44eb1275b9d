#include "export/table/open_stored_weights.h"

#include <algorithm>
#include <array>

#include "core/json/json_member.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/formats/awq/reader.h"
#include "export/formats/base_model.h"
#include "export/formats/bitsandbytes/reader.h"
#include "export/formats/compressed_tensors/reader.h"
#include "export/formats/compressed_tensors/sparse_24.h"
#include "export/formats/fine_grained_float8/reader.h"
#include "export/formats/gguf/model_config.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/types.h"
#include "export/formats/gptq/reader.h"
#include "export/formats/head_as_table.h"
#include "export/formats/modelopt/reader.h"
#include "export/formats/mxfp4_experts/reader.h"
#include "export/formats/safetensors_weights.h"
#include "export/formats/text_model.h"
#include "export/formats/torchao/reader.h"
#include "export/kv_cache/kv_cache_scheme.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "config.json";

class DenseWeights final : public SafetensorsWeights {
 public:
  using SafetensorsWeights::SafetensorsWeights;
  void prefetch(std::string_view name) const override { files().at(name).prefetch(); }
};

struct Method {
  std::string_view name;  // quant_method
  std::unique_ptr<StoredWeights> (*open)(const fs::path& folder, const Json& quantization);
};

constexpr std::array kMethods = {
    Method{"compressed-tensors", open_compressed_tensors},
    Method{"torchao", open_torchao},
    Method{"fp8", open_fine_grained_float8},
    Method{kMxfp4Method, open_mxfp4_experts},
    Method{kModeloptMethod, open_modelopt},
    Method{"gptq", open_gptq},
    Method{"awq", open_awq},
    Method{kBitsandbytesMethod, open_bitsandbytes},
};

const Json* quantization_of(const Json& config) {
  return find_member(config, {kQuantizationConfig});
}

// MLX writes its groups and bits as `quantization`, newer versions as quantization_config too, without a quant_method.
bool is_mlx(const Json& config) {
  if (find_member(config, {"quantization", "bits"}) == nullptr) return false;
  const Json* quantization = quantization_of(config);
  return quantization == nullptr || (quantization->is_object() && quantization->find("quant_method") == nullptr);
}

// Empty: safetensors, or missing.
fs::path stored_gguf_file(const fs::path& folder) {
  const fs::path weights = stored_weights_path(folder);
  return is_gguf_path(weights) ? weights : fs::path();
}

}  // namespace

fs::path stored_weights_path(const fs::path& folder) {
  if (fs::exists(folder / kModelFileName) || fs::exists(folder / kModelIndexName)) return folder;
  return find_gguf_file(folder);
}

bool is_read_dense(const Json& config) {
  const std::string method = find_text(config, {kQuantizationConfig, "quant_method"});
  return method == kMxfp4Method || (method == kBitsandbytesMethod && is_bitsandbytes_4bit(*quantization_of(config)));
}

bool is_quantized(const fs::path& folder, const Json& config) {
  if (const Json* quantization = quantization_of(config); quantization != nullptr)
    return !is_sparse_24(*quantization) && !is_read_dense(config) && !quantizes_cache_alone(*quantization);
  const fs::path gguf = stored_gguf_file(folder);
  return !gguf.empty() && std::ranges::any_of(read_gguf_head(gguf).tensors, [](const GgufEntry& entry) {
    return gguf_type_layout(entry.type)->blocks.has_value();
  });
}

// Scale of scores for which the weights of a GGUF file were stored (query_scale.h), in place of a neighbour's.
void take_score_scale(const fs::path& gguf, Json& config) {
  constexpr std::string_view kKey = "query_pre_attn_scalar";
  if (gguf.empty() || !config.is_object()) return;
  const GgufArchitecture* architecture = stored_gguf_architecture(read_gguf_head(gguf));
  if (architecture == nullptr || architecture->score_scale == nullptr) return;
  const Json own = gguf_model_config(gguf);
  if (const Json* scale = own.find(kKey); scale != nullptr) config.set(std::string(kKey), *scale);
}

fs::path stored_config_file(const fs::path& folder) {
  const fs::path file = (is_gguf_path(folder) ? folder.parent_path() : folder) / kConfigFile;
  return fs::exists(file) ? file : stored_gguf_file(folder);
}

std::optional<Json> stored_model_config(const fs::path& folder) {
  const fs::path file = stored_config_file(folder);
  if (file.empty()) return std::nullopt;
  if (file.filename() != kConfigFile) return gguf_model_config(file);
  Json::ParseOptions options;
  options.max_bytes = std::size_t{16} << 20;
  Json config = Json::parse_file(file, options);
  if (is_gguf_path(folder) && config.is_object()) config.erase(kQuantizationConfig);  // other weights' config
  config = text_model_config(std::move(config));
  const fs::path gguf = stored_gguf_file(folder);
  take_score_scale(gguf, config);
  if (gguf.empty() && config.is_object() && quantization_of(config) == nullptr)
    if (Json quantization = modelopt_config(folder); !quantization.is_null())
      config.set(kQuantizationConfig, std::move(quantization));
  return config;
}

namespace {

std::unique_ptr<StoredWeights> open_as_stored(const fs::path& folder, const Json& config) {
  const Json* quantization = quantization_of(config);
  const fs::path gguf = stored_gguf_file(folder);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !gguf.empty() || !is_mlx(config),
                  "{}: weights quantized by MLX (quantization, without a quant_method) are not supported; use the "
                  "folder that they were made from, or dequantize them with MLX (mlx_lm.convert --dequantize)",
                  (folder / kConfigFile).string());
  if (quantization == nullptr) {
    if (!gguf.empty()) return open_gguf(gguf, config);
    return std::make_unique<DenseWeights>(folder);
  }
  if (is_sparse_24(*quantization)) return open_sparse_24(folder);
  const std::string name = find_text(*quantization, {"quant_method"});
  std::string known;
  for (const Method& method : kMethods) {
    if (method.name == name) return method.open(folder, *quantization);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
  }
  const std::string file = (folder / kConfigFile).string();
  QUENCH_CHECK_AS(ErrorCode::unsupported, !name.empty(), "{}: {} names no quant_method; known: {}", file,
                  kQuantizationConfig, known);
  QUENCH_FAIL(ErrorCode::unsupported, "{}: weights quantized by '{}' are not supported; known: {}", file, name, known);
}

}  // namespace

std::unique_ptr<StoredWeights> open_stored_weights(const fs::path& folder, const Json& config) {
  return head_as_table(base_model_weights(text_model_weights(open_as_stored(folder, config))), config);
}

}  // namespace quench
