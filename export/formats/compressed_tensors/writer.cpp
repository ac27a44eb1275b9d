#include "export/formats/compressed_tensors/writer.h"

#include <algorithm>

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/export_mark.h"
#include "export/formats/packed_words/bit_packing.h"
#include "export/formats/safetensors_items.h"
#include "export/kv_cache/kv_cache_scales.h"

namespace quench {
namespace {

// Four values in three bytes, the first lowest.
Tensor pack_six_bits(const Tensor& codes) {
  const std::int64_t quads = codes.numel() / 4;
  const Tensor packed = Tensor::empty({codes.size(0), codes.size(1) / 4 * 3}, DType::u8);
  const auto* in = static_cast<const std::uint8_t*>(codes.raw_data());
  auto* out = packed.data<std::uint8_t>();
  for (std::int64_t i = 0; i < quads; ++i) {
    const std::uint8_t* c = in + 4 * i;
    const std::uint32_t word = c[0] | static_cast<std::uint32_t>(c[1]) << 6 | static_cast<std::uint32_t>(c[2]) << 12 |
                               static_cast<std::uint32_t>(c[3]) << 18;
    for (int byte = 0; byte < 3; ++byte) out[3 * i + byte] = static_cast<std::uint8_t>(word >> (8 * byte));
  }
  return packed;
}

Tensor integers_as_bytes(const Tensor& values) {
  const Tensor bytes = Tensor::empty(values.shape(), DType::i8);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    bytes.data<std::int8_t>()[i] = static_cast<std::int8_t>(values.data<float>()[i]);
  return bytes;
}

Tensor one_number(float value) {
  return Tensor::from_values<float>({1}, std::array{value});
}

}  // namespace

void add_compressed_layer(SafetensorsItems& items, const ModelTensor& tensor, CompressedForm form) {
  const QuantizedWeight& q = *tensor.quantized;
  const std::string& name = tensor.name;
  const std::int64_t rows = q.shape[0], columns = q.shape[1];
  using enum CompressedForm;
  switch (form) {
    case packed_integers: {
      items.add(name + "_packed", DType::i32, {rows, (columns * q.scheme.bits + 31) / 32},
                [&q] { return pack_rows(q.codes, q.scheme.bits); });
      items.add(name + "_shape", Tensor::from_values<std::int64_t>({2}, std::array{rows, columns}));
      if (q.zero_points.defined()) items.add(name + "_zero_point", pack_zero_points(q.zero_points, q.scheme.bits));
      break;
    }
    case integers:
      items.add(name, q.codes);
      if (q.zero_points.defined()) items.add(name + "_zero_point", integers_as_bytes(q.zero_points));
      break;
    case float8:
    case mxfp8: items.add(name, q.codes); break;
    case mxfp6:
      items.add(name + "_packed", DType::u8, {rows, columns / 4 * 3}, [&q] { return pack_six_bits(q.codes); });
      break;
    case mxfp4:
    case nvfp4: items.add_bytes(name + "_packed", {rows, columns / 2}, q.codes); break;
  }
  const Tensor scales = q.scales.rank() == 0 ? q.scales.view({1}) : q.scales;
  if (scales.dtype() == DType::f8_e8m0)
    items.add_bytes(name + "_scale", scales.shape(), scales);
  else
    items.add(name + "_scale", scales);
  // Reciprocal: scale = stored scale / global scale.
  if (form == nvfp4) items.add(name + "_global_scale", one_number(1.0f / q.global_scale.data<float>()[0]));
  if (!q.input_scale.defined()) return;
  const float inputs = q.input_scale.data<float>()[0];
  if (form == nvfp4)
    items.add(tensor.layer + ".input_global_scale", one_number(1.0f / inputs));
  else
    items.add(tensor.layer + ".input_scale", one_number(inputs));
}

Json write_compressed_tensors(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                              std::uint64_t max_shard_bytes, const StoredKvCache* cache) {
  // "Linear" does not include embeddings: by name.
  std::vector<std::pair<const Scheme*, bool>> kinds;
  std::vector<CompressedGroup> groups;
  std::vector<std::string> ignored = tied_heads(tensors);
  SafetensorsItems items;
  for (const ModelTensor& tensor : tensors) {
    if (tensor.quantized == nullptr) {
      // Routers and experts are linear layers to readers.
      constexpr std::string_view kSuffix = ".weight";
      if (tensor.shape.rank() == 2 && tensor.name.ends_with(kSuffix))
        ignored.push_back(tensor.name.substr(0, tensor.name.size() - kSuffix.size()));
      items.add(tensor);
      continue;
    }
    const std::pair kind{tensor.scheme, tensor.embedding};
    const auto at = static_cast<std::size_t>(std::ranges::find(kinds, kind) - kinds.begin());
    if (at == kinds.size()) {
      CompressedForm form = compressed_form(*tensor.scheme);
      // Transformers reads an embedding under its own name.
      if (tensor.embedding && form == CompressedForm::packed_integers) form = CompressedForm::integers;
      groups.push_back({form, tensor.scheme->weights, tensor.scheme->inputs, {}});
      kinds.push_back(kind);
    }
    CompressedGroup& group = groups[at];
    group.targets.push_back(tensor.layer);
    add_compressed_layer(items, tensor, group.form);
  }
  const auto linear = std::ranges::count(kinds, false, &std::pair<const Scheme*, bool>::second);
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (linear == 1 && !kinds[i].second) {
      // vLLM's head has a class of its own.
      const std::string head(nn::kHeadName);
      const bool with_head = std::ranges::find(groups[i].targets, head) != groups[i].targets.end();
      groups[i].targets = {"Linear"};
      if (with_head) groups[i].targets.push_back(head);
    }
  if (cache != nullptr) add_kv_scales(items, *cache);
  write_safetensors_folder(folder, items.take(), max_shard_bytes, export_metadata());
  return compressed_config(groups, ignored, cache != nullptr ? to_json(cache->scheme) : Json());
}

}  // namespace quench
