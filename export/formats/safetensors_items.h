#pragma once
// List of tensors for write_safetensors_folder; holds their bytes until written.

#include <functional>
#include <string>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "export/formats/model_tensors.h"

namespace quench {

class SafetensorsItems {
 public:
  // Adds a contiguous CPU tensor.
  void add(std::string name, const Tensor& tensor);
  // Adds the tensor's bytes as u8 of shape `shape`.
  void add_bytes(std::string name, const Shape& shape, const Tensor& tensor);
  // Adds a tensor computed at write time.
  void add(std::string name, DType dtype, const Shape& shape, std::function<Tensor()> make);
  // Adds an unquantized tensor of the model.
  void add(const ModelTensor& tensor);

  // Valid as long as this object and its inputs.
  [[nodiscard]] std::vector<SafetensorsItem> take() { return std::move(items_); }

 private:
  std::vector<Tensor> kept_;
  std::vector<SafetensorsItem> items_;
};

}  // namespace quench
