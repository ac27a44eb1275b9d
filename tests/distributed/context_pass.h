#pragma once
// Loss and gradients of sequences in parts, against those of whole sequences.

#include "distributed/context/context_exchange.h"
#include "distributed/ranks.h"
#include "tests/distributed/one_pass.h"

namespace quench::testing {

struct ContextPass {
  std::string model;  // members of config.json
  DType dtype = DType::f32;
  std::int64_t length = 64;  // tokens of a row; a multiple of twice the ranks
  double tolerance = 1e-5;   // relative, of the loss and of the norm of each parameter's gradient

  // Every rank has the whole model and one part of each sequence.
  void check(const distributed::Ranks& ranks, Device device) const {
    const nn::ModelConfig config = pass_model(model);
    nn::CausalLm one(config, {.dtype = dtype, .device = device}), parts(config, {.dtype = dtype, .device = device});
    for (nn::CausalLm* each : {&one, &parts}) each->initialize(7);
    const Batch batch = pass_batch(length);
    const double loss = run_pass(one, batch, length);
    const distributed::ContextExchange exchange(ranks.world, std::make_shared<distributed::ExposedCommTimer>(device));
    parts.set_sequence_exchange(&exchange);
    double sum = run_pass(parts, part_of(batch, {ranks.rank, ranks.size}, device), length);
    distributed::all_reduce_numbers(*ranks.host, std::span(&sum, 1), distributed::ReduceOp::sum, "loss");
    expect_near(sum, loss, std::abs(loss), tolerance, "loss");
    const auto expected = one.parameters(), got = parts.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Tensor gradient = got[i]->variable.grad();
      distributed::all_reduce(*ranks.world, gradient, distributed::ReduceOp::sum, "gradient");
      expect_same_gradient(gradient, expected[i]->variable.grad(), tolerance, expected[i]->name);
    }
  }
};

}  // namespace quench::testing
