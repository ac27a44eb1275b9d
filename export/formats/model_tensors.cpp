#include "export/formats/model_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/ops/elementwise.h"
#include "export/schemes/finite_values.h"
#include "nn/experts/expert_linear.h"
#include "nn/experts/moe.h"
#include "nn/modules/embedding.h"
#include "nn/modules/linear.h"
#include "nn/modules/whole_rows.h"

namespace quench {
namespace {

// Each parameter is gathered once for pieces in name order; two entries, as experts alternate between two.
nn::WholeRows keeping_latest(nn::WholeRows whole) {
  constexpr std::size_t kKept = 2;
  if (!whole) return whole;
  using Kept = std::pair<const nn::Parameter*, Tensor>;
  return [whole = std::move(whole), latest = std::make_shared<std::vector<Kept>>()](const nn::Parameter& parameter) {
    const auto found = std::ranges::find(*latest, &parameter, &Kept::first);
    if (found != latest->end()) {
      std::rotate(found, found + 1, latest->end());
    } else {
      if (latest->size() == kKept) latest->erase(latest->begin());  // before the next gather
      latest->emplace_back(&parameter, whole(parameter));
    }
    return latest->back().second;
  };
}

Tensor rows_as(const nn::Parameter& parameter, const nn::ParameterPiece& piece, DType dtype,
               const nn::WholeRows& whole) {
  const MemoryScope scope(MemoryCategory::workspace);
  const autograd::Weight weight = nn::whole_weight(parameter, whole);
  const auto use = weight.acquire();
  const Tensor rows = use.value().narrow(0, piece.row_begin, piece.rows).to(Device{});
  const Tensor out = Tensor::empty(rows.shape(), dtype);
  if (rows.dtype() == dtype)
    Tensor(out).copy_from(rows);
  else
    cast({rows, out});
  require_finite(out, rows, piece.hf_name);
  return out;
}

// The tensor called `name`, as `layer_name`.
ModelTensor copied(const std::vector<ModelTensor>& tensors, std::string_view name, std::string layer_name) {
  ModelTensor copy = *std::ranges::find(tensors, name, &ModelTensor::name);
  copy.name = std::move(layer_name);
  copy.layer.clear();
  copy.embedding = false;
  return copy;
}

}  // namespace

std::string_view mtp_part(std::string_view name, const nn::ModelConfig& config) {
  for (std::int64_t layer = 0; layer < config.mtp.declared; ++layer)
    if (const std::string prefix = fmt::format("model.layers.{}.", config.num_hidden_layers + layer);
        name.starts_with(prefix))
      return name.substr(prefix.size());
  return {};
}

void leave_out_mtp(std::vector<ModelTensor>& tensors, const nn::ModelConfig& config) {
  std::erase_if(tensors, [&](const ModelTensor& tensor) { return !mtp_part(tensor.name, config).empty(); });
}

std::vector<ModelTensor> model_tensors(nn::CausalLm& model, DType dtype, nn::WholeRows whole) {
  whole = keeping_latest(std::move(whole));
  std::set<const nn::Parameter*> linear_weights, tables;
  // f32, as in Transformers: bf16 would round away load-balancing updates.
  std::set<const nn::Parameter*> kept_f32;
  model.visit([&](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear_weights.insert(&linear->weight());
    if (auto* table = dynamic_cast<nn::Embedding*>(&module)) tables.insert(&table->weight());
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) linear_weights.insert(&experts->weight());
    if (auto* moe = dynamic_cast<nn::MoE*>(&module)) kept_f32.insert(moe->expert_bias());
  });
  std::vector<ModelTensor> tensors;
  for (nn::Parameter* parameter : model.parameters()) {
    if (parameter->adapter || parameter->scales) continue;
    const DType stored = kept_f32.contains(parameter) ? DType::f32 : dtype;
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      Shape shape = parameter->global_shape;
      shape[0] = piece.rows;
      constexpr std::string_view kSuffix = ".weight";
      const bool linear = linear_weights.contains(parameter) && piece.hf_name.ends_with(kSuffix);
      tensors.push_back(
          {.name = piece.hf_name,
           .layer = linear ? piece.hf_name.substr(0, piece.hf_name.size() - kSuffix.size()) : "",
           .embedding = tables.contains(parameter),
           .shape = shape,
           .dtype = stored,
           .value = [parameter, &piece, stored, whole] { return rows_as(*parameter, piece, stored, whole); },
           .parameter = parameter,
           .piece = &piece});
    }
  }
  const nn::ModelConfig& config = model.config();
  for (std::int64_t layer = config.num_hidden_layers; layer < config.all_layers(); ++layer) {
    constexpr std::string_view kTable = "model.embed_tokens.weight";
    const std::string head = std::string(nn::kHeadName) + ".weight", prefix = fmt::format("model.layers.{}.", layer);
    tensors.push_back(copied(tensors, kTable, prefix + std::string(kMtpEmbedding)));
    tensors.push_back(copied(tensors, config.tie_word_embeddings ? kTable : head, prefix + std::string(kMtpHead)));
  }
  return tensors;
}

}  // namespace quench
