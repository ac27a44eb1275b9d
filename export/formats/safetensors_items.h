#pragma once
// Collects tensors for write_safetensors_folder and keeps their bytes alive until they are written.

#include <functional>
#include <string>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "export/formats/model_tensors.h"

namespace quench {

class SafetensorsItems {
 public:
  // A contiguous tensor on the CPU.
  void add(std::string name, const Tensor& tensor);
  // Its bytes as u8 of another shape.
  void add_bytes(std::string name, const Shape& shape, const Tensor& tensor);
  // A tensor that is made when its turn to be written comes.
  void add(std::string name, DType dtype, const Shape& shape, std::function<Tensor()> make);
  // A tensor of the model in high precision.
  void add(const ModelTensor& tensor);

  // Valid as long as the object and what it was given.
  [[nodiscard]] std::vector<SafetensorsItem> take() { return std::move(items_); }

 private:
  std::vector<Tensor> kept_;
  std::vector<SafetensorsItem> items_;
};

}  // namespace quench
