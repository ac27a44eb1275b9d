#pragma once
// Loss and gradients of sequences in parts, against those of whole sequences.

#include <cmath>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/ops/elementwise.h"
#include "data/sampling/loader.h"
#include "distributed/context/context_exchange.h"
#include "distributed/ranks.h"
#include "train/step/train_step.h"

namespace quench::testing {

struct ContextPass {
  std::string model;  // members of config.json
  DType dtype = DType::f32;
  std::int64_t length = 64;  // tokens of a row; a multiple of twice the ranks
  double tolerance = 1e-5;   // relative, of the loss and of the norm of each parameter's gradient

  // Every rank has the whole model and one part of each sequence.
  void check(const distributed::Ranks& ranks, Device device) const {
    const nn::ModelConfig config = nn::parse_model_config(
        Json::parse(R"({"vocab_size": 61, "num_hidden_layers": 2, "max_position_embeddings": 8192, )" + model + "}"),
        "the test");
    nn::CausalLm one(config, {.dtype = dtype, .device = device}), parts(config, {.dtype = dtype, .device = device});
    for (nn::CausalLm* each : {&one, &parts}) each->initialize(7);
    const double loss = run(one, batch());
    const distributed::ContextExchange exchange(ranks.world, std::make_shared<distributed::ExposedCommTimer>(device));
    parts.set_sequence_exchange(&exchange);
    double sum = run(parts, part_of(batch(), {ranks.rank, ranks.size}, device));
    distributed::all_reduce_numbers(*ranks.host, std::span(&sum, 1), distributed::ReduceOp::sum, "loss");
    expect_near(sum, loss, std::abs(loss), "loss");
    const auto expected = one.parameters(), got = parts.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::vector<float> a = values(expected[i]->variable.grad());
      const Tensor gradient = got[i]->variable.grad();
      distributed::all_reduce(*ranks.world, gradient, distributed::ReduceOp::sum, "gradient");
      const std::vector<float> b = values(gradient);
      double difference = 0, norm = 0;
      for (std::size_t e = 0; e < a.size(); ++e) {
        difference += std::pow(static_cast<double>(a[e]) - static_cast<double>(b[e]), 2);
        norm += std::pow(static_cast<double>(a[e]), 2);
      }
      expect_near(std::sqrt(difference), 0, std::sqrt(norm), "gradient of " + expected[i]->name);
    }
  }

 private:
  void expect_near(double got, double wanted, double size, const std::string& what) const {
    QUENCH_CHECK_AS(ErrorCode::failed, std::abs(got - wanted) <= tolerance * size, "{}: {} instead of {} of size {}",
                    what, got, wanted, size);
  }
  // One row is a sequence, the other has documents and padding.
  [[nodiscard]] Batch batch() const {
    Batch batch;
    std::vector<std::int32_t> ids, labels, positions;
    const std::int64_t third = length / 3;
    for (const std::int64_t size : {length, third, std::int64_t{1}, length - third - 3}) {
      const auto begin = std::ssize(ids);
      batch.sequences.push_back({begin, size, begin, size});
      for (std::int64_t i = 0; i < size; ++i) {
        ids.push_back(static_cast<std::int32_t>((ids.size() * 7 + ids.size() * ids.size() % 11) % 61));
        labels.push_back(static_cast<std::int32_t>((labels.size() * 13 + 5) % 61));
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
  [[nodiscard]] double run(nn::CausalLm& on, const Batch& batch) const {
    const Device device = on.options().device;
    const std::int64_t tokens = batch.input_ids.numel();
    autograd::Tape tape;
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = on.loss(batch.input_ids.view({tokens}).to(device), batch.labels.view({tokens}).to(device),
                     batch_context(on, batch), 1.0F / static_cast<float>(2 * length));
    }
    tape.backward(loss);
    return static_cast<double>(values(loss.value()).front());
  }
  static std::vector<float> values(const Tensor& tensor) {
    const Tensor wide = Tensor::empty(tensor.shape(), DType::f32, tensor.device());
    cast({tensor, wide});
    const Tensor host = wide.to(Device{});
    return {host.data<float>(), host.data<float>() + host.numel()};
  }
};

}  // namespace quench::testing
