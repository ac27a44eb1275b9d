#include "export/formats/safetensors_items.h"

#include <utility>

namespace quench {
namespace {

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw_data()), tensor.nbytes()};
}

}  // namespace

void SafetensorsItems::add(std::string name, const Tensor& tensor) {
  kept_.push_back(tensor);
  items_.push_back({std::move(name), tensor.dtype(), tensor.shape(), bytes_of(tensor)});
}

void SafetensorsItems::add_bytes(std::string name, const Shape& shape, const Tensor& tensor) {
  kept_.push_back(tensor);
  items_.push_back({std::move(name), DType::u8, shape, bytes_of(tensor)});
}

void SafetensorsItems::add(std::string name, DType dtype, const Shape& shape, std::function<Tensor()> make) {
  items_.push_back({.name = std::move(name), .dtype = dtype, .shape = shape, .produce = [make = std::move(make)] {
                      const Tensor made = make();
                      const auto bytes = bytes_of(made);
                      return std::vector<std::byte>(bytes.begin(), bytes.end());
                    }});
}

void SafetensorsItems::add(const ModelTensor& tensor) {
  add(tensor.name, tensor.dtype, tensor.shape, tensor.value);
}

}  // namespace quench
