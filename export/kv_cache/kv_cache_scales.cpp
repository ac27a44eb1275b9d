#include "export/kv_cache/kv_cache_scales.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/ops/quantize/quantize.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/formats/safetensors_rows.h"

namespace quench {
namespace {

constexpr std::array<std::string_view, 2> kLetters = {"k", "v"};
constexpr std::array<std::string_view, 2> kNouns = {"keys", "values"};

// f32 [2 kv_heads] on the CPU: the maximum with the magnitudes of n cached rows.
void raise(const Tensor& rows, std::int64_t heads, std::vector<float>& most, std::int64_t layer) {
  const std::int64_t dim = rows.size(1) / heads;
  const Tensor by_vector = amax(rows.view({rows.size(0) * heads, dim}), Granularity::row).to(Device{});
  const float* values = by_vector.data<float>();
  for (std::int64_t i = 0; i < by_vector.numel(); ++i) {
    QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(values[i]),
                    "calibration of the KV cache: {} of layer {} are not finite: the model's weights have NaN or "
                    "infinity, or its activations overflow",
                    kNouns[i % heads < heads / 2 ? 0 : 1], layer);
    float& largest = most[static_cast<std::size_t>(i % heads)];
    largest = std::max(largest, values[i]);
  }
}

// Stored under these names, by vLLM's and llm-compressor's releases.
std::optional<SafetensorsFolder::Location> find_scale(const SafetensorsFolder& folder,
                                                      const std::vector<std::string>& names, std::size_t layer,
                                                      std::string_view letter) {
  const std::string attention = fmt::format("layers.{}.self_attn.", layer);
  const std::array<std::string, 4> endings = {fmt::format("{}{}_scale", attention, letter),
                                              fmt::format("{}attn.{}_scale", attention, letter),
                                              fmt::format("{0}{1}_proj.{1}_scale", attention, letter),
                                              fmt::format("{}{}_proj.output_scale", attention, letter)};
  for (const std::string& ending : endings)
    for (const std::string& name : names)
      if (name == ending || name.ends_with("." + ending)) return folder.find(name);
  return std::nullopt;
}

// One number, or one a head: `heads` numbers.
void read_scale(const SafetensorsFolder& folder, const SafetensorsFolder::Location& stored, bool by_head,
                std::span<float> heads) {
  const SafetensorsEntry& entry = *stored.entry;
  const std::int64_t count = by_head ? std::ssize(heads) : 1;
  const DType dtype = entry.dtype.value_or(DType::u8);
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  entry.shape.numel() == count && (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16),
                  "{}: {} is {}{}, expected {} in F32, BF16 or F16 by kv_cache_scheme.strategy", folder.path().string(),
                  entry.name, entry.dtype_name, entry.shape.to_string(),
                  count == 1 ? "one number" : fmt::format("{} numbers, one a KV head,", count));
  const Tensor value = read_entry(folder, stored, entry.shape, dtype);
  dispatch<float, bfloat16, float16>(dtype, "KV cache scale", [&]<class T>() {
    for (std::size_t i = 0; i < heads.size(); ++i) heads[i] = static_cast<float>(value.data<T>()[by_head ? i : 0]);
  });
  for (const float scale : heads)
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(scale) && scale > 0,
                    "{}: {} holds {}, expected positive finite scales of the KV cache; --kv-cache model reads the "
                    "folder without them",
                    folder.path().string(), entry.name, scale);
}

}  // namespace

nn::KvCacheElements calibrate_kv_cache(const nn::CausalLm& model, const KvCacheScheme& scheme,
                                       std::span<const std::vector<std::int32_t>> sequences) {
  nn::KvCacheElements elements{.format = scheme.format, .scales = {}};
  if (scheme.scales->dynamic) return elements;
  const autograd::NoGrad no_grad;
  const nn::ModelConfig& config = model.config();
  const Device device = model.options().device;
  std::size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
  nn::KvCache cache(config, static_cast<std::int64_t>(longest), model.options().dtype, device);
  std::vector<std::vector<float>> most;
  for (const nn::BlockSpec& block : config.blocks)
    most.emplace_back(static_cast<std::size_t>(2 * block.attention.kv_heads), 0.0f);
  for (const auto& sequence : sequences) {
    const auto tokens = static_cast<std::int64_t>(sequence.size());
    nn::ForwardContext context = model.make_context({{0, tokens, 0, tokens}}, tokens);
    context.cache = &cache;
    (void)model.hidden(Tensor::from_values<std::int32_t>({tokens}, sequence).to(device), context);
    for (std::size_t layer = 0; layer < most.size(); ++layer)
      raise(cache.rows(static_cast<std::int64_t>(layer)).narrow(0, 0, tokens), std::ssize(most[layer]), most[layer],
            static_cast<std::int64_t>(layer));
  }
  for (std::vector<float>& heads : most) {
    const auto half = static_cast<std::ptrdiff_t>(heads.size() / 2);
    for (auto part = heads.begin(); part != heads.end(); part += half) {
      if (!scheme.by_head()) std::fill(part, part + half, *std::max_element(part, part + half));
      for (auto scale = part; scale != part + half; ++scale)
        *scale = *scale == 0 ? 1.0f : *scale / scheme.format->largest;
    }
    elements.scales.push_back(Tensor::from_values<float>({std::ssize(heads)}, heads).to(device));
  }
  return elements;
}

void add_kv_scales(SafetensorsItems& items, const StoredKvCache& cache) {
  const bool by_head = cache.scheme.by_head();
  for (std::size_t layer = 0; layer < cache.elements.scales.size(); ++layer) {
    const Tensor all = cache.elements.scales[layer].to(Device{});
    const std::int64_t heads = all.numel() / 2, count = by_head ? heads : 1;
    for (std::size_t part = 0; part < kLetters.size(); ++part) {
      const Tensor own = all.narrow(0, static_cast<std::int64_t>(part) * heads, count).clone();
      items.add(fmt::format("model.layers.{}.self_attn.{}_scale", layer, kLetters[part]),
                by_head ? own.view({count, 1, 1}) : own);
    }
  }
}

nn::KvCacheElements read_kv_cache(const std::filesystem::path& folder, const KvCacheScheme& scheme,
                                  const nn::ModelConfig& config, Device device) {
  nn::KvCacheElements elements{.format = scheme.format, .scales = {}};
  if (scheme.scales->dynamic) return elements;
  const SafetensorsFolder files(folder);
  const std::vector<std::string> names = files.names();
  for (std::size_t layer = 0; layer < config.blocks.size(); ++layer) {
    const std::int64_t heads = config.blocks[layer].attention.kv_heads;
    std::vector<float> scales(static_cast<std::size_t>(2 * heads));
    for (std::size_t part = 0; part < kLetters.size(); ++part) {
      const auto found = find_scale(files, names, layer, kLetters[part]);
      QUENCH_CHECK_AS(ErrorCode::corrupt, found.has_value(),
                      "{}: model.layers.{}.self_attn.{}_scale is missing, which quantization_config.kv_cache_scheme "
                      "promises; --kv-cache model reads the folder without it",
                      folder.string(), layer, kLetters[part]);
      read_scale(files, *found, scheme.by_head(),
                 std::span(scales).subspan(part * static_cast<std::size_t>(heads), static_cast<std::size_t>(heads)));
    }
    elements.scales.push_back(Tensor::from_values<float>({2 * heads}, scales).to(device));
  }
  return elements;
}

void require_kv_scales(const nn::ModelConfig& config) {
  for (const nn::BlockSpec& block : config.blocks)
    QUENCH_CHECK_AS(ErrorCode::unsupported, !block.attention.mla,
                    "model type '{}': readers cache the latent of multi-head latent attention, not keys and values, so "
                    "a folder cannot hold scales of its KV cache; quench generate --kv-cache quantizes it",
                    config.model_type);
}

}  // namespace quench
