#include "train/model_folder/gguf_adapter.h"

#include <algorithm>
#include <map>

#include "core/ops/elementwise.h"
#include "core/system/file.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "export/formats/export_mark.h"
#include "export/formats/gguf/experts.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/query_scale.h"
#include "export/formats/gguf/row_order.h"
#include "export/formats/gguf/types.h"
#include "export/formats/gguf/writer.h"
#include "export/schemes/finite_values.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// A and B of one layer or expert.
struct Pair {
  std::string layer;
  Tensor a, b;  // f32, CPU: [rank, in], [out, rank]
};

Tensor wide(const Tensor& value) {
  const Tensor host = value.to(Device{});
  const Tensor out = Tensor::empty(host.shape(), DType::f32);
  cast({host, out});
  return out;
}

void require_plain(const recipes::Adapters& adapters) {
  const std::string use = "merge the adapters into the model (format gguf)";
  QUENCH_CHECK_AS(ErrorCode::unsupported, !adapters.options().dora,
                  "llama.cpp's adapters have no magnitudes (lora.dora): {}", use);
  QUENCH_CHECK_AS(ErrorCode::unsupported, adapters.saved().modules().empty() && adapters.tokens().modules().empty(),
                  "llama.cpp's adapters hold no whole modules and no rows of the embedding (lora.modules_to_save, "
                  "lora.trainable_token_indices): {}",
                  use);
}

class AdapterFile {
 public:
  AdapterFile(const nn::ModelConfig& config, const recipes::Adapters& adapters, const recipes::Adapters::Whole& whole)
      : config_(config), architecture_(*find_gguf_architecture(config.model_type)), alpha_(adapters.options().alpha) {
    std::map<std::string, Pair> layers;
    for (const recipes::AdapterTensor& tensor : adapters.tensors(whole)) {
      Pair& pair = layers[tensor.layer];
      pair.layer = tensor.layer;
      (tensor.part == recipes::AdapterPart::a ? pair.a : pair.b) = wide(tensor.value);
    }
    for (const recipes::LoraLayer& layer : adapters.layers()) add(layer, layers.at(layer.name));
  }

  // By GGUF name; several experts in their order.
  [[nodiscard]] const std::map<std::string, std::vector<Pair>>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::vector<std::pair<std::string, GgufValue>> metadata() const {
    return {{"general.architecture", std::string(architecture_.name)},
            {"general.type", std::string("adapter")},
            {kGgufExportMark, true},
            {"general.name", config_.model_type},
            {"adapter.type", std::string("lora")},
            {"adapter.lora.alpha", static_cast<float>(alpha_)}};
  }

 private:
  void add(const recipes::LoraLayer& layer, Pair pair) {
    const std::string weight = layer.name + ".weight";
    std::optional<std::string> name = gguf_experts_name(weight, config_.experts);
    if (!name) name = gguf_tensor_name(weight, architecture_);
    QUENCH_CHECK_AS(ErrorCode::unsupported, name.has_value(), "GGUF has no name for {}: leave it out of lora.targets",
                    layer.name);
    // llama.cpp multiplies by alpha / rank.
    double factor = layer.scale * static_cast<double>(layer.rank) / alpha_;
    if (weight.find(".self_attn.q_proj.") != std::string::npos &&
        config_.block(0).attention.qk_norm != nn::QkNorm::weighted)
      factor *= static_cast<double>(gguf_query_factor(config_));
    if (factor != 1)
      for (std::int64_t i = 0; i < pair.b.numel(); ++i)
        pair.b.data<float>()[i] = static_cast<float>(static_cast<double>(pair.b.data<float>()[i]) * factor);
    if (const std::int64_t heads = architecture_.interleaved_rotation ? rotated_heads(weight, config_) : 0; heads > 0)
      pair.b = interleave_heads(pair.b, heads);
    tensors_[*name].push_back(std::move(pair));
  }

  const nn::ModelConfig& config_;
  const GgufArchitecture& architecture_;
  double alpha_;
  std::map<std::string, std::vector<Pair>> tensors_;
};

// Rows of all parts in `dtype`; experts share a rank.
Tensor stacked(const std::vector<Pair>& parts, Tensor Pair::*matrix, DType dtype) {
  const Shape shape = (parts.front().*matrix).shape();
  const auto count = static_cast<std::int64_t>(parts.size());
  Tensor out = Tensor::empty({count * shape[0], shape[1]}, dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor& part = parts[static_cast<std::size_t>(i)].*matrix;
    const Tensor rows = out.narrow(0, i * shape[0], shape[0]);
    if (dtype == DType::f32)
      Tensor(rows).copy_from(part);
    else
      cast({part, rows});
    require_finite(rows, part, parts[static_cast<std::size_t>(i)].layer);
  }
  return out;
}

}  // namespace

void save_gguf_adapter(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target, DType dtype,
                       const recipes::Adapters::Whole& whole) {
  require_export_target(target);
  require_gguf_model(gguf_stored_config(model.config()));
  require_plain(adapters);
  const AdapterFile file(model.config(), adapters, whole);
  std::vector<GgufTensor> heads;
  std::vector<Tensor> values;
  const auto add = [&](std::string name, const std::vector<Pair>& parts, Tensor Pair::*matrix) {
    const Tensor value = stacked(parts, matrix, dtype);
    const Shape shape = (parts.front().*matrix).shape();
    GgufTensor head{.name = std::move(name),
                    .dimensions = {static_cast<std::uint64_t>(shape[1]), static_cast<std::uint64_t>(shape[0])},
                    .type = gguf_type_of(dtype),
                    .bytes = value.nbytes()};
    if (gguf_experts_name(parts.front().layer + ".weight", model.config().experts))
      head.dimensions.push_back(parts.size());
    heads.push_back(std::move(head));
    values.push_back(value);
  };
  for (const auto& [name, parts] : file.tensors()) {
    add(name + ".lora_a", parts, &Pair::a);
    add(name + ".lora_b", parts, &Pair::b);
  }
  const fs::path folder = resolved_path(target.folder);
  remove_stale_temporaries(folder.parent_path(), folder.filename().string());
  StagingFolder staging(folder);
  std::string bytes = gguf_head(file.metadata(), heads);
  for (const Tensor& value : values) {
    bytes.append(static_cast<const char*>(value.raw_data()), value.nbytes());
    bytes.resize(gguf_padded(bytes.size()));
  }
  write_file_atomically(staging.path() / kGgufFileName, bytes);
  publish_export(staging, target);
}

}  // namespace quench
