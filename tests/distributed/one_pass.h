#pragma once
// A forward and backward pass of a small model over sequences, documents and padding.

#include <cmath>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/ops/elementwise.h"
#include "data/sampling/loader.h"
#include "nn/spec/model_config.h"
#include "train/step/train_step.h"

namespace quench::testing {

// Members of config.json besides `model`: a vocabulary of `vocabulary` tokens and two layers.
inline nn::ModelConfig pass_model(const std::string& model, int vocabulary = 61) {
  return nn::parse_model_config(
      Json::parse(
          fmt::format(R"({{"vocab_size": {}, "num_hidden_layers": 2, "max_position_embeddings": 8192, )", vocabulary) +
          model + "}"),
      "the test");
}

// One row is a sequence, the other has documents and padding. Ids and labels are below 60.
inline Batch pass_batch(std::int64_t length) {
  Batch batch;
  std::vector<std::int32_t> ids, labels, positions;
  const std::int64_t third = length / 3;
  for (const std::int64_t size : {length, third, std::int64_t{1}, length - third - 3}) {
    const auto begin = std::ssize(ids);
    batch.sequences.push_back({begin, size, begin, size});
    for (std::int64_t i = 0; i < size; ++i) {
      ids.push_back(static_cast<std::int32_t>((ids.size() * 7 + ids.size() * ids.size() % 11) % 60));
      labels.push_back(static_cast<std::int32_t>((labels.size() * 13 + 5) % 60));
      positions.push_back(static_cast<std::int32_t>(i));
    }
  }
  batch.valid_tokens = std::ssize(ids);
  ids.resize(static_cast<std::size_t>(2 * length), 0);
  positions.resize(ids.size(), 0);
  labels.resize(ids.size(), -100);
  batch.input_ids = Tensor::from_values<std::int32_t>({2, length}, ids);
  batch.labels = Tensor::from_values<std::int32_t>({2, length}, labels);
  batch.positions = Tensor::from_values<std::int32_t>({2, length}, positions);
  return batch;
}

inline std::vector<float> pass_values(const Tensor& tensor) {
  const Tensor wide = Tensor::empty(tensor.shape(), DType::f32, tensor.device());
  cast({tensor, wide});
  const Tensor host = wide.to(Device{});
  return {host.data<float>(), host.data<float>() + host.numel()};
}

// Loss over 2 * length; leaves the gradients.
inline double run_pass(nn::CausalLm& on, const Batch& batch, std::int64_t length,
                       autograd::Recompute recompute = autograd::Recompute::none) {
  const Device device = on.options().device;
  const std::int64_t tokens = batch.input_ids.numel();
  autograd::Tape tape(recompute);
  autograd::Variable loss;
  {
    const autograd::TapeScope scope(tape);
    nn::ForwardContext context = batch_context(on, batch);
    context.recompute = recompute;
    loss = on.loss(batch.input_ids.view({tokens}).to(device), batch.labels.view({tokens}).to(device), context,
                   1.0F / static_cast<float>(2 * length));
  }
  tape.backward(loss);
  return static_cast<double>(pass_values(loss.value()).front());
}

inline void expect_near(double got, double wanted, double size, double tolerance, const std::string& what) {
  QUENCH_CHECK_AS(ErrorCode::failed, std::abs(got - wanted) <= tolerance * size, "{}: {} instead of {} of size {}",
                  what, got, wanted, size);
}

// Difference of gradients, relative to the norm of `wanted`.
inline void expect_same_gradient(const Tensor& got, const Tensor& wanted, double tolerance, const std::string& name) {
  const std::vector<float> a = pass_values(wanted), b = pass_values(got);
  QUENCH_CHECK_AS(ErrorCode::failed, a.size() == b.size(), "gradient of {}: {} elements instead of {}", name, b.size(),
                  a.size());
  double difference = 0, norm = 0;
  for (std::size_t e = 0; e < a.size(); ++e) {
    difference += std::pow(static_cast<double>(a[e]) - static_cast<double>(b[e]), 2);
    norm += std::pow(static_cast<double>(a[e]), 2);
  }
  expect_near(std::sqrt(difference), 0, std::sqrt(norm), tolerance, "gradient of " + name);
}

}  // namespace quench::testing
