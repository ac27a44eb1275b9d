#include "export/ptq/fuse_scales.h"

#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "core/ops/elementwise.h"

namespace quench {
namespace {

constexpr std::string_view kValue = "v_proj", kUp = "up_proj";

// In a decoder layer; without these modules (MoE, MLA) no fusion.
struct FusionPath {
  std::string producer;
  std::string_view part;  // projection of a linear producer
  std::string consumer;
};
std::array<FusionPath, 4> fusion_paths(const nn::BlockSpec& block) {
  const std::string mlp(block.feed_forward.name);
  return {FusionPath{std::string(block.attention.norm.name), "", "self_attn.qkv_proj"},
          FusionPath{std::string(block.feed_forward.norm.name), "", mlp + ".gate_up_proj"},
          FusionPath{"self_attn.qkv_proj", kValue, "self_attn.o_proj"},
          FusionPath{mlp + ".gate_up_proj", kUp, mlp + ".down_proj"}};
}

template <class T>
T* find_module(const ModuleMap& modules, const std::string& path) {
  const auto found = modules.find(path);
  return found == modules.end() ? nullptr : dynamic_cast<T*>(found->second);
}

// Also of a layer that checkpoints hold as one (Phi-3, GLM-4).
std::vector<nn::LinearPart> row_parts(const nn::Linear& producer, std::string_view part,
                                      const nn::AttentionSpec& attention) {
  if (!producer.parts().empty()) return producer.parts();
  const std::int64_t rows = producer.weight().global_shape[0];
  if (part == kUp) return {{"gate_proj", rows / 2}, {std::string(kUp), rows / 2}};
  return {{"q_proj", attention.query_width()},
          {"k_proj", attention.kv_width()},
          {std::string(kValue), attention.kv_width()}};
}

// Per consumer column; empty on a mismatch. GQA: heads of a KV head share rows.
std::vector<std::int64_t> producer_rows(const nn::Linear& producer, std::string_view part, std::int64_t columns,
                                        const nn::AttentionSpec& attention) {
  std::int64_t first = 0;
  for (const nn::LinearPart& one : row_parts(producer, part, attention)) {
    if (one.name != part) {
      first += one.rows;
      continue;
    }
    std::vector<std::int64_t> rows(static_cast<std::size_t>(columns));
    if (one.rows == columns) {
      std::iota(rows.begin(), rows.end(), first);
      return rows;
    }
    const std::int64_t size = attention.value_dim, heads = attention.heads, values = attention.kv_heads;
    if (columns != heads * size || one.rows != values * size) return {};
    for (std::int64_t c = 0; c < columns; ++c)
      rows[static_cast<std::size_t>(c)] = first + c / size / (heads / values) * size + c % size;
    return rows;
  }
  return {};
}

void scale_rows(nn::Module& producer, const std::vector<std::int64_t>& rows, const float* factors) {
  for (nn::Parameter* parameter : producer.parameters()) {  // weight and optional bias
    const Tensor values = values_of(*parameter);
    const std::int64_t width = values.numel() / values.size(0);
    std::set<std::int64_t> done;
    for (std::size_t c = 0; c < rows.size(); ++c) {
      if (!done.insert(rows[c]).second) continue;
      float* row = values.data<float>() + rows[c] * width;
      for (std::int64_t i = 0; i < width; ++i) row[i] /= factors[c];
    }
    set_values(*parameter, values);
  }
}

}  // namespace

ModuleMap modules_of(nn::CausalLm& model) {
  ModuleMap modules;
  model.visit([&](const std::string& name, nn::Module& module) { modules[name] = &module; });
  return modules;
}

std::vector<ScaleFusion> scale_fusions_of_layer(const ModuleMap& modules, const nn::ModelConfig& config,
                                                std::int64_t layer, bool linear_producers) {
  std::vector<ScaleFusion> fusions;
  const nn::BlockSpec block = config.block(layer);
  for (const FusionPath& path : fusion_paths(block)) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    ScaleFusion fusion{.consumer = find_module<nn::Linear>(modules, prefix + path.consumer),
                       .consumer_name = prefix + path.consumer};
    if (fusion.consumer == nullptr) continue;
    if (path.part.empty()) {
      fusion.producer = find_module<nn::RmsNorm>(modules, prefix + path.producer);
    } else if (linear_producers) {
      auto* producer = find_module<nn::Linear>(modules, prefix + path.producer);
      if (producer == nullptr) continue;
      fusion.rows = producer_rows(*producer, path.part, fusion.consumer->weight().global_shape[1], block.attention);
      if (!fusion.rows.empty()) fusion.producer = producer;
    }
    if (fusion.producer != nullptr) fusions.push_back(std::move(fusion));
  }
  return fusions;
}

Tensor fuse_scales(const ScaleFusion& fusion, const Tensor& factors) {
  const Tensor used = factors.clone();
  float* s = used.data<float>();
  if (fusion.rows.empty()) {
    nn::Parameter& norm = *fusion.producer->parameters().front();
    const float offset = static_cast<const nn::RmsNorm&>(*fusion.producer).form().weight_offset;
    const Tensor before = values_of(norm), divided = before.clone();
    for (std::int64_t c = 0; c < used.numel(); ++c)
      divided.data<float>()[c] = (before.data<float>()[c] + offset) / s[c] - offset;
    set_values(norm, divided);
    const Tensor after = values_of(norm);
    for (std::int64_t c = 0; c < used.numel(); ++c) {
      const float quotient = (before.data<float>()[c] + offset) / (after.data<float>()[c] + offset);
      if (quotient > 0 && std::isfinite(quotient)) s[c] = quotient;
    }
  } else {
    scale_rows(*fusion.producer, fusion.rows, s);
  }
  nn::Parameter& weight = fusion.consumer->weight();
  const Tensor values = values_of(weight);
  const std::int64_t rows = values.size(0), columns = values.size(1);
  float* w = values.data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) w[r * columns + c] *= s[c];
  set_values(weight, values);
  return used;
}

Tensor values_of(const nn::Parameter& parameter) {
  const MemoryScope scope(MemoryCategory::workspace);
  const autograd::Weight weight = parameter.weight();
  const auto use = weight.acquire();
  const Tensor host = use.value().to(Device{});
  const Tensor wide = Tensor::empty(host.shape(), DType::f32);
  if (host.dtype() == DType::f32)
    Tensor(wide).copy_from(host);
  else
    cast({host, wide});
  return wide;
}

void set_values(nn::Parameter& parameter, const Tensor& values) {
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor stored = parameter.variable.value();
  Tensor narrow = values;
  if (stored.dtype() != DType::f32) {
    narrow = Tensor::empty(values.shape(), stored.dtype());
    cast({values, narrow});
  }
  stored.copy_from(narrow);
  parameter.mark_changed();
}

}  // namespace quench
