#pragma once
// For write_safetensors_folder; holds the bytes until written.

#include <functional>
#include <string>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "export/formats/model_tensors.h"

namespace quench {

class SafetensorsItems {
 public:
  // Contiguous, CPU.
  void add(std::string name, const Tensor& tensor);
  // As u8 of shape `shape`.
  void add_bytes(std::string name, const Shape& shape, const Tensor& tensor);
  // Computed at write time.
  void add(std::string name, DType dtype, const Shape& shape, std::function<Tensor()> make);
  // Unquantized.
  void add(const ModelTensor& tensor);

  // Valid as long as this object and its inputs.
  [[nodiscard]] std::vector<SafetensorsItem> take() { return std::move(items_); }

 private:
  std::vector<Tensor> kept_;
  std::vector<SafetensorsItem> items_;
};

}  // namespace quench
