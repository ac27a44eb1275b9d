#include "export/formats/bitsandbytes/reader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>

#include "core/system/log_once.h"
#include "export/formats/bitsandbytes/quant_state.h"
#include "export/formats/safetensors_weights.h"

namespace quench {
namespace {

constexpr std::string_view kWeight = ".weight", kRowScales = ".SCB", kRowFormat = ".weight_format";
constexpr std::string_view kAbsmax = ".absmax", kLevels = ".quant_map";
constexpr std::string_view kNestedAbsmax = ".nested_absmax", kNestedLevels = ".nested_quant_map";
constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr std::int64_t kLevelCount = 16, kNestedLevelCount = 256;
constexpr float kMostCode = 127.0f;

bool is_true(const Json& quantization, std::string_view key) {
  const Json* value = quantization.find(key);
  return value != nullptr && *value == Json(true);
}

// "....weight" of a part of a 4-bit weight; "" for other names.
std::string_view weight_of_part(std::string_view name) {
  const std::size_t end = name.rfind(".weight.");
  if (end == std::string_view::npos) return {};
  const std::string_view weight = name.substr(0, end + kWeight.size()), rest = name.substr(weight.size());
  constexpr std::array kAll = {kAbsmax, kLevels, kNestedAbsmax, kNestedLevels};
  return rest.starts_with(kState) || std::ranges::find(kAll, rest) != kAll.end() ? weight : std::string_view();
}

class BitsandbytesWeights final : public SafetensorsWeights {
 public:
  BitsandbytesWeights(const std::filesystem::path& folder, const Json& quantization) : SafetensorsWeights(folder) {
    const bool four = is_bitsandbytes_4bit(quantization), eight = is_true(quantization, "load_in_8bit");
    QUENCH_CHECK_AS(ErrorCode::unsupported, four != eight,
                    "{}: {} sets {} of load_in_4bit and load_in_8bit; expected one", (folder / "config.json").string(),
                    kQuantizationConfig, four ? "both" : "neither");
    for (const std::string& name : files().names())
      if (const std::string_view weight = weight_of_part(name);
          !weight.empty() && std::string_view(name).substr(weight.size()).starts_with(kState))
        states_.emplace(weight, read_state(name));
    if (!states_.empty())
      QUENCH_LOG_INFO_ONCE("{}: weights of 4 bits are dequantized when they are read", folder.string());
    for (const std::string& name : files().names()) check_parts(name, four);
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files().names())
      if (!is_part(name)) names.push_back(std::move(name));
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    if (const auto state = states_.find(name); state != states_.end())
      return StoredTensor{state->second.shape, false, "4-bit", state->second.dtype};
    auto found = SafetensorsWeights::find(name);
    return found && row_scales(name) ? StoredTensor{found->shape, true, "packed", {}} : found;
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    const auto state = states_.find(name);
    if (state == states_.end()) return SafetensorsWeights::read(name, out, first_row);
    const Shape& shape = state->second.shape;
    QUENCH_CHECK(out.dtype() == state->second.dtype && out.size(1) == shape[1] && first_row + out.size(0) <= shape[0],
                 "{} read as {}", name, out.describe());
    const MemoryScope scope(MemoryCategory::workspace);
    decode(name, state->second, out, first_row * shape[1]);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const auto scales = row_scales(name);
    if (!scales) return SafetensorsWeights::read_packed(name);
    const Location codes = files().at(name);
    const Shape shape = codes.entry->shape;
    QUENCH_CHECK_AS(ErrorCode::corrupt, shape.rank() == 2, "{} has shape {}, expected a matrix", named(name),
                    shape.to_string());
    QuantizedWeight weight{.scheme = {.bits = 8, .sharing = ScaleSharing::row}, .shape = shape};
    weight.codes = read_whole(codes, shape, DType::i8);
    weight.scales = read_whole(*scales, {shape[0]}, DType::f32).view({shape[0], 1});
    for (std::int64_t row = 0; row < shape[0]; ++row) weight.scales.data<float>()[row] /= kMostCode;
    return pack(weight, named(name));
  }

 private:
  // Scales of an 8-bit weight.
  [[nodiscard]] std::optional<Location> row_scales(std::string_view name) const {
    return name.ends_with(kWeight) ? part(name.substr(0, name.size() - kWeight.size()), kRowScales) : std::nullopt;
  }

  [[nodiscard]] bool is_part(std::string_view name) const {
    if (states_.contains(weight_of_part(name))) return true;
    for (const std::string_view ending : {kRowScales, kRowFormat})
      if (name.ends_with(ending) && part(name.substr(0, name.size() - ending.size()), kRowScales)) return true;
    return false;
  }

  [[nodiscard]] QuantState read_state(const std::string& name) const {
    const Location stored = files().at(name);
    constexpr std::uint64_t kMostBytes = 1 << 16;
    QUENCH_CHECK_AS(ErrorCode::corrupt, stored.entry->nbytes() <= kMostBytes, "{} has {} bytes, expected a JSON text",
                    named(name), stored.entry->nbytes());
    std::string text(stored.entry->nbytes(), '\0');
    stored.read(std::as_writable_bytes(std::span(text)));
    const QuantState state = parse_quant_state(text, named(name));
    const std::string weight(weight_of_part(name));
    QUENCH_CHECK_AS(ErrorCode::corrupt, files().find(weight).has_value(), "{} is missing", named(weight));
    const std::uint64_t bytes = (static_cast<std::uint64_t>(state.shape.numel()) + 1) / 2;
    QUENCH_CHECK_AS(ErrorCode::corrupt, files().at(weight).entry->nbytes() == bytes,
                    "{} has {} bytes, expected {} for shape {} of 4 bits", named(weight),
                    files().at(weight).entry->nbytes(), bytes, state.shape.to_string());
    return state;
  }

  void check_parts(const std::string& name, bool four) const {
    const Location stored = files().at(name);
    const std::string_view weight = weight_of_part(name);
    QUENCH_CHECK_AS(ErrorCode::corrupt, weight.empty() || states_.contains(weight),
                    "{}: its weight has no {}nf4 or {}fp4", named(name), kState.substr(1), kState.substr(1));
    if (name.ends_with(kWeight) && (four ? stored.entry->dtype == DType::u8 : stored.entry->dtype == DType::i8))
      QUENCH_CHECK_AS(ErrorCode::corrupt, four ? states_.contains(name) : row_scales(name).has_value(),
                      "{} is {}, without {}", named(name), stored.entry->dtype_name,
                      four ? ".quant_state.bitsandbytes__nf4 or __fp4" : "row scales (.SCB)");
    if (!name.ends_with(kRowFormat)) return;
    const Tensor format = read_whole(stored, stored.entry->shape, DType::u8);
    QUENCH_CHECK_AS(ErrorCode::unsupported, format.numel() == 1 && format.data<std::uint8_t>()[0] == 0,
                    "{}: weights in the layout of a GPU are not read; expected 0, row by row", named(name));
  }

  [[nodiscard]] Tensor read_floats(std::string_view name, std::string_view suffix, std::int64_t count) const {
    const Tensor values = read_whole(required(name, suffix), {count}, DType::f32);
    const auto* value = values.data<float>();
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::all_of(value, value + count, [](float x) { return std::isfinite(x); }),
                    "{}{} holds a value that is not finite", named(name), suffix);
    return values;
  }

  // f32, of all blocks.
  [[nodiscard]] Tensor read_absmax(std::string_view name, const QuantState& state) const {
    const std::int64_t blocks = state.blocks(), nested = state.nested_block;
    if (nested == 0) return read_floats(name, kAbsmax, blocks);
    const Tensor codes = read_whole(required(name, kAbsmax), {blocks}, DType::u8);
    const Tensor levels = read_floats(name, kNestedLevels, kNestedLevelCount);
    const Tensor scales = read_floats(name, kNestedAbsmax, (blocks + nested - 1) / nested);
    Tensor absmax = Tensor::empty({blocks}, DType::f32);
    for (std::int64_t i = 0; i < blocks; ++i)
      absmax.data<float>()[i] =
          levels.data<float>()[codes.data<std::uint8_t>()[i]] * scales.data<float>()[i / nested] + state.nested_offset;
    return absmax;
  }

  // Elements of the flattened matrix from `first` on.
  void decode(std::string_view name, const QuantState& state, const Tensor& out, std::int64_t first) const {
    const Tensor levels = read_floats(name, kLevels, kLevelCount), absmax = read_absmax(name, state);
    const std::int64_t count = out.numel(), begin = first / 2, end = (first + count + 1) / 2;
    const Tensor bytes = Tensor::empty({end - begin}, DType::u8);
    files().at(name).read({static_cast<std::byte*>(bytes.raw_data()), bytes.nbytes()},
                          static_cast<std::uint64_t>(begin));
    const auto* pairs = bytes.data<std::uint8_t>();
    std::atomic<bool> finite = true;
    dispatch<float, bfloat16, float16>(out.dtype(), "values", [&]<class T>() {
#pragma omp parallel for schedule(static)
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = first + i;
        const std::uint8_t pair = pairs[at / 2 - begin];
        const float value =
            levels.data<float>()[at % 2 == 0 ? pair >> 4 : pair & 15] * absmax.data<float>()[at / state.block];
        const auto rounded = static_cast<T>(value);
        if (!std::isfinite(static_cast<float>(rounded))) finite = false;
        out.data<T>()[i] = rounded;
      }
    });
    QUENCH_CHECK_AS(ErrorCode::corrupt, finite, "{} holds a value that {} cannot hold", named(name),
                    to_string(state.dtype));
  }

  std::map<std::string, QuantState, std::less<>> states_;  // by name of the 4-bit weight
};

}  // namespace

bool is_bitsandbytes_4bit(const Json& quantization) {
  return is_true(quantization, "load_in_4bit");
}

std::unique_ptr<StoredWeights> open_bitsandbytes(const std::filesystem::path& folder, const Json& quantization) {
  return std::make_unique<BitsandbytesWeights>(folder, quantization);
}

}  // namespace quench
