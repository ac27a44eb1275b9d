#pragma once
// Tensors whose every byte is a function of the step, so that a checkpoint that mixes two saves is recognised.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"

namespace quench::testing {

class StepTensors {
 public:
  // `bulk_bytes`: size of the largest tensor.
  explicit StepTensors(std::int64_t bulk_bytes = 4096) {
    add("layers.0.weight", {7, 5}, DType::f32);
    add("layers.0.norm", {33}, DType::bf16);
    add("optimizer.step", {}, DType::i64);
    add("empty", {0, 4}, DType::f32);
    add("bulk", {bulk_bytes}, DType::u8);
  }
  StepTensors(const StepTensors&) = delete;
  StepTensors& operator=(const StepTensors&) = delete;

  // Fills the tensors for a step.
  const std::vector<CheckpointTensor>& at(std::int64_t step) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) fill(buffers_[i], step, i);
    return tensors_;
  }

  [[nodiscard]] CheckpointState state(std::int64_t step) const {
    CheckpointState state;
    state.step = step;
    state.tokens_seen = step * 1000;
    state.samples = step * 10;
    state.tool_version = "test";
    state.config = Json::Object{{"seed", 42}, {"lr", 3e-4}};
    state.rng = Json::Object{{"counter", step}};
    return state;
  }

  // Empty if the checkpoint holds exactly the state and tensors of its step, else what differs.
  [[nodiscard]] std::string difference(CheckpointReader& reader) const {
    const std::int64_t step = reader.state().step;
    if (reader.state().tokens_seen != step * 1000 || reader.state().rng.at("counter").as_int() != step)
      return "the state is of another step";
    if (reader.manifest().tensors.size() != tensors_.size()) return "the set of tensors differs";
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const CheckpointTensor& tensor = tensors_[i];
      std::vector<std::uint8_t> expected(buffers_[i].size()), stored(buffers_[i].size());
      fill(expected, step, i);
      reader.read(tensor.name, Tensor::from_host(stored.data(), tensor.global_shape, tensor.data.dtype()));
      if (stored != expected) return "tensor " + tensor.name + " is of another step";
    }
    return {};
  }

 private:
  void add(const char* name, const Shape& shape, DType dtype) {
    buffers_.emplace_back(static_cast<std::size_t>(row_bytes(shape, dtype, shape.rank() == 0 ? 1 : shape[0])));
    tensors_.push_back(CheckpointTensor::whole(name, Tensor::from_host(buffers_.back().data(), shape, dtype)));
  }

  static void fill(std::vector<std::uint8_t>& bytes, std::int64_t step, std::size_t tensor) {
    std::uint64_t x = static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15u + tensor;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i % 8 == 0) x = (x ^ (x >> 27)) * 0x94D049BB133111EBu + i;
      bytes[i] = static_cast<std::uint8_t>(x >> (8 * (i % 8)));
    }
  }

  std::vector<std::vector<std::uint8_t>> buffers_;  // moving a vector keeps its bytes where they are
  std::vector<CheckpointTensor> tensors_;
};

}  // namespace quench::testing
