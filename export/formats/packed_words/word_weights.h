#pragma once
// Base of the readers of GPTQ's and AWQ's folders: a layer NAME holds integers of a few bits in int32 words
// (NAME.qweight), with zero points (NAME.qzeros) and scales (NAME.scales) of groups of inputs, in place of NAME.weight.

#include <functional>
#include <map>
#include <mutex>

#include "export/formats/safetensors_weights.h"

namespace quench {

inline constexpr std::int64_t kMostGroup = std::int64_t{1} << 30;

// Layer [rows, columns], as its tensors and the config say.
struct WordLayer {
  std::int64_t rows = 0, columns = 0, group = 0;
  int bits = 4;
  bool packed = true;                       // uniform groups of an order that PackedMatrix has; else read() as f32
  std::vector<std::int32_t> group_of = {};  // by column; empty: column / group

  [[nodiscard]] std::int64_t groups() const { return (columns + group - 1) / group; }
};

// Values of a layer: (code - zero) * scale.
struct WordValues {
  Tensor codes;   // i8 [rows, columns], less 2^(bits - 1)
  Tensor zeros;   // i8 [rows, groups], likewise
  Tensor scales;  // f32, bf16 or f16 [rows, groups]
};

class WordWeights : public SafetensorsWeights {
 public:
  // Names as of the unquantized folder. Biases of quantized layers that hold zeros alone, which older writers added to
  // every layer, are found but not listed.
  [[nodiscard]] std::vector<std::string> names() const override { return names_; }
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override;
  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override;
  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override;

 protected:
  explicit WordWeights(const std::filesystem::path& folder) : SafetensorsWeights(folder) {}

  // Calls describe() for every layer; for constructors of derived classes. Throws its errors.
  void add_layers(const std::function<WordLayer(const std::string& layer)>& describe);
  // Values of `layer`; throws corrupt naming the tensor.
  [[nodiscard]] virtual WordValues values_of(const std::string& layer, const WordLayer& form) const = 0;

  // Tensor of the layer; throws corrupt if it is missing or of another rank, or dtype (words, g_idx: I32).
  [[nodiscard]] Location words(std::string_view layer, std::string_view suffix) const;
  [[nodiscard]] Location scales(std::string_view layer) const;
  // Throws corrupt naming the tensor, with `reason`.
  void require_shape(const Location& stored, const Shape& shape, std::string_view reason) const;

 private:
  [[nodiscard]] bool is_zero_bias(const std::string& name) const;

  std::map<std::string, WordLayer, std::less<>> layers_;  // by name of the weight
  std::vector<std::string> names_;
  // Values of the layer that read() is in.
  mutable std::mutex mutex_;
  mutable std::string current_;
  mutable WordValues values_;
};

// [columns, rows] of [rows, columns]: i8, bf16, f16 or f32.
[[nodiscard]] Tensor transposed(const Tensor& matrix);

// Integer of the key, or of its other name `alias`; throws unsupported naming config.json and key if absent.
[[nodiscard]] std::int64_t quantization_integer(const std::filesystem::path& folder, const Json& quantization,
                                                std::string_view key, std::string_view alias = {});

}  // namespace quench
