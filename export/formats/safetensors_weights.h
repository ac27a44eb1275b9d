#pragma once
// Base of the readers of safetensors folders: finds and reads tensors as stored; derived classes add their format's.

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/safetensors_rows.h"
#include "export/formats/stored_weights.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

class SafetensorsWeights : public StoredWeights {
 public:
  explicit SafetensorsWeights(const std::filesystem::path& folder) : files_(folder) {}

  [[nodiscard]] std::vector<std::string> names() const override { return files_.names(); }
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override;
  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    read_rows(files_.at(name), out, first_row);
  }
  // Throws invalid_argument.
  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override;
  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view /*name*/) const override { return std::nullopt; }

 protected:
  using Location = SafetensorsFolder::Location;

  [[nodiscard]] const SafetensorsFolder& files() const noexcept { return files_; }
  // "FOLDER: NAME", for messages.
  [[nodiscard]] std::string named(std::string_view name) const;
  // Tensor NAME + SUFFIX; required() throws corrupt if it is missing.
  [[nodiscard]] std::optional<Location> part(std::string_view name, std::string_view suffix) const;
  [[nodiscard]] Location required(std::string_view name, std::string_view suffix) const;
  // Throws corrupt, naming folder and tensor, on another shape or dtype.
  [[nodiscard]] Tensor read_whole(const Location& stored, const Shape& shape, DType dtype) const {
    return read_entry(files_, stored, shape, dtype);
  }
  // Throws corrupt for integers, one in each byte, beyond the scheme's bits.
  void check_range(const QuantizedWeight& weight, std::string_view name) const;

 private:
  SafetensorsFolder files_;
};

// Shape of QuantizedWeight::scales; `single`: of one scale per tensor.
[[nodiscard]] Shape scales_shape(const QuantizedWeight& weight, const Shape& single);
// Integers i8 as f32 of this shape.
[[nodiscard]] Tensor zero_points_of(const Tensor& bytes, const Shape& shape);

}  // namespace quench
