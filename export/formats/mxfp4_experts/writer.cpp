#include "export/formats/mxfp4_experts/writer.h"

#include <cstring>

#include "core/ops/quantize/quantize.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/formats/export_mark.h"
#include "export/formats/fused_experts.h"
#include "export/formats/mxfp4_experts/reader.h"
#include "export/formats/safetensors_items.h"

namespace quench {
namespace {

constexpr std::int64_t kCodesPerByte = 2, kBytesPerBlock = kMxBlockSize / kCodesPerByte;

// Rows of `bytes` bytes of all experts, in the order of the fused tensor.
Tensor fused_rows(const std::vector<ModelTensor>& pieces, const nn::ExpertsSpec& experts, std::int64_t bytes,
                  const Tensor QuantizedWeight::*source) {
  const auto parts = static_cast<std::int64_t>(pieces.size()) / experts.count;
  const std::int64_t rows = pieces.front().shape[0];
  const OutputOrder order{parts, rows, experts.interleaved_storage && parts > 1};
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor out = Tensor::empty({experts.count, parts * rows, bytes}, DType::u8);
  auto* to = out.data<std::uint8_t>();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto* from = static_cast<const std::uint8_t*>(((*pieces[i].quantized).*source).raw_data());
    const auto expert = static_cast<std::int64_t>(i) / parts, part = static_cast<std::int64_t>(i) % parts;
    for (std::int64_t row = 0; row < rows; ++row)
      std::memcpy(to + (expert * parts * rows + order.at(part, row)) * bytes, from + row * bytes,
                  static_cast<std::size_t>(bytes));
  }
  return out;
}

void add_blocks(const std::vector<ModelTensor>& pieces, const nn::ExpertsSpec& experts, SafetensorsItems& items) {
  for (const ModelTensor& piece : pieces)
    QUENCH_CHECK_AS(
        ErrorCode::bad_config, piece.quantized != nullptr,
        "{} is not quantized, but format mxfp4 stores all experts in MXFP4: leave experts out of exclusions "
        "and rules, or choose format hf",
        piece.name);
  const std::string name = fused_name(*pieces.front().parameter);
  const std::int64_t columns = pieces.front().shape[1], groups = columns / kMxBlockSize;
  const std::int64_t rows = pieces.front().parameter->global_shape[0] / experts.count;
  items.add(name + std::string(kMxfp4Blocks), DType::u8, {experts.count, rows, groups, kBytesPerBlock},
            [pieces, experts, columns] {
              return fused_rows(pieces, experts, columns / kCodesPerByte, &QuantizedWeight::codes);
            });
  items.add(name + std::string(kMxfp4Scales), DType::u8, {experts.count, rows, groups},
            [pieces, experts, groups] { return fused_rows(pieces, experts, groups, &QuantizedWeight::scales); });
}

}  // namespace

std::string mxfp4_problem(const Scheme& scheme) {
  if (scheme.inputs) return "it says nothing of inputs; mxfp4_weight_only has the same weights";
  const OperandScheme& weights = scheme.weights;
  if (weights.blocks || weights.element != ElementFormat::e2m1 || weights.scale != ScaleForm::e8m0)
    return "it stores mxfp4_weight_only alone";
  return {};
}

std::string_view mxfp4_kept(const ModelTensor& tensor) {
  const bool expert = tensor.parameter != nullptr && tensor.parameter->experts > 0;
  return expert ? "" : "the format stores layers other than experts in high precision";
}

void require_mxfp4_model(const nn::ModelConfig& config) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, config.experts.interleaved_storage,
                  "model type '{}' has no folders of MXFP4 experts (gpt-oss has); use compressed-tensors",
                  config.model_type);
}

Json write_mxfp4_experts(const ExportJob& job) {
  const nn::ExpertsSpec& experts = job.config.experts;
  SafetensorsItems items;
  for (std::size_t i = 0; i < job.tensors.size();) {
    std::vector<ModelTensor> pieces{job.tensors[i]};
    for (++i; i < job.tensors.size() && job.tensors[i].parameter == pieces.front().parameter; ++i)
      pieces.push_back(job.tensors[i]);
    const bool bias = pieces.front().shape.rank() == 1;
    if (pieces.front().parameter->experts == 0)
      for (const ModelTensor& piece : pieces) items.add(piece);
    else if (bias)
      items.add(fused_experts(pieces, experts.interleaved_storage));
    else
      add_blocks(pieces, experts, items);
  }
  write_safetensors_folder(job.folder, items.take(), job.max_shard_bytes, export_metadata());
  Json kept = Json::array();
  for (const std::string& module :
       {std::string("model.layers.*.self_attn"), fmt::format("model.layers.*.{}", experts.names.router),
        std::string("model.embed_tokens"), std::string("lm_head")})
    kept.push_back(module);
  return Json::Object{{"quant_method", kMxfp4Method}, {"modules_to_not_convert", std::move(kept)}};
}

}  // namespace quench
