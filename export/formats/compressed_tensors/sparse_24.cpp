#include "export/formats/compressed_tensors/sparse_24.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/number/sparsity_2_4.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/export_mark.h"
#include "export/formats/safetensors_items.h"
#include "export/formats/safetensors_weights.h"

namespace quench {
namespace {

constexpr std::string_view kFormat = "sparse-24-bitmask", kSparseVersion = "0.13.0";
constexpr std::string_view kCompressed = ".compressed", kBitmask = ".bitmask", kShape = ".shape",
                           kWeightSuffix = ".weight";

// body<Word>(): unsigned, of the element's width.
template <class Body>
auto with_word(DType dtype, const Body& body) {
  return byte_size(dtype) == 4 ? body.template operator()<std::uint32_t>() : body.template operator()<std::uint16_t>();
}

template <class Word>
std::uint32_t magnitude(Word word) {
  return word & static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));
}

bool has_sparsity_2_4(const Tensor& weight) {
  if (weight.rank() != 2 || weight.size(1) % 4 != 0) return false;
  return with_word(weight.dtype(), [&]<class Word>() {
    const auto* w = static_cast<const Word*>(weight.raw_data());
    for (std::int64_t at = 0; at < weight.numel(); at += 4) {
      int others = 0;
      for (int i = 0; i < 4; ++i) others += magnitude(w[at + i]) != 0 ? 1 : 0;
      if (others > 2) return false;
    }
    return true;
  });
}

// Exactly two of four, zeros included.
template <class Word>
std::uint32_t stored_of_four(const Word* four) {
  std::uint32_t magnitudes[4];
  for (int i = 0; i < 4; ++i) magnitudes[i] = magnitude(four[i]);
  return kept_of_four(magnitudes);
}

Tensor compressed(const Tensor& weight) {
  const Tensor out = Tensor::empty({weight.size(0), weight.size(1) / 2}, weight.dtype());
  with_word(weight.dtype(), [&]<class Word>() {
    const auto* w = static_cast<const Word*>(weight.raw_data());
    auto* to = static_cast<Word*>(out.raw_data());
    for (std::int64_t at = 0; at < weight.numel(); at += 4) {
      const std::uint32_t stored = stored_of_four(w + at);
      for (int i = 0; i < 4; ++i)
        if ((stored >> i & 1u) != 0) *to++ = w[at + i];
    }
  });
  return out;
}

Tensor bitmask(const Tensor& weight) {
  const std::int64_t columns = weight.size(1), bytes = (columns + 7) / 8;
  const Tensor out = Tensor::zeros({weight.size(0), bytes}, DType::u8);
  with_word(weight.dtype(), [&]<class Word>() {
    const auto* w = static_cast<const Word*>(weight.raw_data());
    for (std::int64_t row = 0; row < weight.size(0); ++row)
      for (std::int64_t k = 0; k < columns; k += 4)
        out.data<std::uint8_t>()[row * bytes + k / 8] |=
            static_cast<std::uint8_t>(stored_of_four(w + row * columns + k) << (k % 8));
  });
  return out;
}

class SparseWeights final : public SafetensorsWeights {
 public:
  explicit SparseWeights(const std::filesystem::path& folder) : SafetensorsWeights(folder) {}

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files().names()) {
      if (name.ends_with(kCompressed))
        names.push_back(name.substr(0, name.size() - kCompressed.size()) + std::string(kWeightSuffix));
      else if (!is_part(name, kBitmask) && !is_part(name, kShape))
        names.push_back(std::move(name));
    }
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    if (const auto sparse = part_of(name, kCompressed)) {
      const SafetensorsEntry& entry = *sparse->entry;
      QUENCH_CHECK_AS(ErrorCode::corrupt, entry.shape.rank() == 2, "{}: {} has shape {}, expected two axes",
                      files().path().string(), entry.name, entry.shape.to_string());
      return StoredTensor{{entry.shape[0], 2 * entry.shape[1]}, false, entry.dtype_name, entry.dtype};
    }
    return SafetensorsWeights::find(name);
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    if (const auto sparse = part_of(name, kCompressed)) return read_sparse(name, *sparse, out, first_row);
    SafetensorsWeights::read(name, out, first_row);
  }

 private:
  // Part of a compressed layer.
  [[nodiscard]] bool is_part(std::string_view name, std::string_view suffix) const {
    return name.ends_with(suffix) && part(name.substr(0, name.size() - suffix.size()), kCompressed);
  }
  // By weight name.
  [[nodiscard]] std::optional<Location> part_of(std::string_view name, std::string_view suffix) const {
    if (!name.ends_with(kWeightSuffix)) return std::nullopt;
    return part(name.substr(0, name.size() - kWeightSuffix.size()), suffix);
  }

  void read_sparse(std::string_view name, const Location& values, const Tensor& out, std::int64_t first_row) const {
    const MemoryScope scope(MemoryCategory::workspace);
    const std::int64_t rows = out.size(0), columns = 2 * values.entry->shape[1], bytes = (columns + 7) / 8;
    const auto mask = part_of(name, kBitmask);
    const Shape expected{values.entry->shape[0], bytes};
    QUENCH_CHECK_AS(ErrorCode::corrupt, mask && mask->entry->dtype == DType::u8 && mask->entry->shape == expected,
                    "{}: {} has no bitmask U8{}", files().path().string(), values.entry->name, expected.to_string());
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    values.entry->dtype == out.dtype() && (byte_size(out.dtype()) == 4 || byte_size(out.dtype()) == 2),
                    "{}: {} has dtype {}, expected F32, BF16 or F16", files().path().string(), values.entry->name,
                    values.entry->dtype_name);
    const Tensor bits = Tensor::empty({rows, bytes}, DType::u8), kept = Tensor::empty({rows, columns / 2}, out.dtype());
    mask->read({static_cast<std::byte*>(bits.raw_data()), bits.nbytes()},
               static_cast<std::uint64_t>(first_row * bytes));
    values.read({static_cast<std::byte*>(kept.raw_data()), kept.nbytes()},
                static_cast<std::uint64_t>(first_row) * static_cast<std::uint64_t>(columns / 2) *
                    static_cast<std::uint64_t>(byte_size(out.dtype())));
    const auto* bit = bits.data<std::uint8_t>();
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < bytes; ++i) count += std::popcount(bit[row * bytes + i]);
      const bool beyond = columns % 8 != 0 && bit[row * bytes + bytes - 1] >> (columns % 8) != 0;
      QUENCH_CHECK_AS(ErrorCode::corrupt, count == columns / 2 && !beyond,
                      "{}: row {} of {} marks {} elements, expected {} of {}", files().path().string(), first_row + row,
                      mask->entry->name, count, columns / 2, columns);
    }
    with_word(out.dtype(), [&]<class Word>() {
      const auto* from = static_cast<const Word*>(kept.raw_data());
      auto* to = static_cast<Word*>(out.raw_data());
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t k = 0; k < columns; ++k)
          to[row * columns + k] = (bit[row * bytes + k / 8] >> (k % 8) & 1) != 0 ? *from++ : Word{0};
    });
  }
};

}  // namespace

Json write_sparse_24(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                     std::uint64_t max_shard_bytes) {
  SafetensorsItems items;
  Json ignored = Json::array();
  for (const std::string& head : tied_heads(tensors)) ignored.push_back(head);
  std::int64_t zeros = 0, elements = 0;
  for (const ModelTensor& tensor : tensors) {
    elements += tensor.shape.numel();
    if (tensor.layer.empty() || !has_sparsity_2_4(tensor.value())) {
      if (tensor.shape.rank() == 2 && tensor.name.ends_with(kWeightSuffix))
        ignored.push_back(tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size()));
      items.add(tensor);
      continue;
    }
    zeros += tensor.shape.numel() / 2;
    const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    items.add(tensor.layer + std::string(kCompressed), tensor.dtype, {rows, columns / 2},
              [value = tensor.value] { return compressed(value()); });
    items.add(tensor.layer + std::string(kBitmask), DType::u8, {rows, (columns + 7) / 8},
              [value = tensor.value] { return bitmask(value()); });
    items.add(tensor.layer + std::string(kShape), Tensor::from_values<std::int64_t>({2, 1}, std::array{rows, columns}));
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, zeros > 0,
                  "no linear layer of the model is 2:4 sparse: train with a recipe sparse24, or prune it (--sparsity)");
  write_safetensors_folder(folder, items.take(), max_shard_bytes, export_metadata());
  Json sparsity = Json::object();
  sparsity.set("format", kFormat);
  sparsity.set("global_sparsity", static_cast<double>(zeros) / static_cast<double>(elements));
  sparsity.set("ignore", std::move(ignored));
  sparsity.set("registry_requires_subclass", false);
  sparsity.set("sparsity_structure", "2:4");
  sparsity.set("targets", Json::Array{"Linear"});
  Json config = Json::object();
  config.set("quant_method", "compressed-tensors");
  config.set("sparsity_config", std::move(sparsity));
  config.set("version", kSparseVersion);
  return config;
}

bool is_sparse_24(const Json& quantization) {
  if (!quantization.is_object()) return false;
  const Json* groups = quantization.find("config_groups");
  if (groups != nullptr && groups->is_object() && !groups->as_object().empty()) return false;
  const Json* sparsity = quantization.find("sparsity_config");
  if (sparsity == nullptr || !sparsity->is_object()) return false;
  const Json* format = sparsity->find("format");
  return format != nullptr && *format == Json(kFormat);
}

std::unique_ptr<StoredWeights> open_sparse_24(const std::filesystem::path& folder) {
  return std::make_unique<SparseWeights>(folder);
}

}  // namespace quench
