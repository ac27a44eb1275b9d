#include "nn/modules/linear.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "core/ops/elementwise.h"
#include "core/ops/global_norm.h"
#include "nn/optim/adamw.h"
#include "tests/nn/modules/layer_reference.h"

namespace quench::nn {
namespace {

using reference::numbers;

struct Tree final : Module {
  Tree() : proj(4, 6, {.bias = true, .parts = {{"q_proj", 4}, {"k_proj", 2}}}) {
    add_module("proj", proj);
    assign_names("layers.0.");
  }
  Linear proj;
};

std::vector<std::string> names(Module& module) {
  std::vector<std::string> all;
  for (const Parameter* p : module.parameters()) all.push_back(p->name);
  return all;
}

// y = x W^T + b + x S^T with a second matrix S of the kernel's own.
class WithSecondMatrix final : public LinearKernel {
 public:
  explicit WithSecondMatrix(bool trainable)
      : second_(make_parameter({6, 4}, {.trainable = trainable}, Initializer::zeros)) {
    Tensor(second_.variable.value()).zero();
  }
  [[nodiscard]] std::vector<KernelParameter> parameters() const override { return {{"second.weight", &second_}}; }
  [[nodiscard]] std::string_view name() const override { return "second"; }

 private:
  [[nodiscard]] LinearOutput do_run(const LinearCall& call, const Parameter& weight,
                                    const Weight& bias) const override {
    return {autograd::add(high_precision_linear_kernel()->apply(call.x, weight, bias),
                          autograd::linear(call.x, second_.weight()))};
  }
  mutable Parameter second_;
};

TEST(Linear, MultipliesAndAddsTheBias) {
  Tree tree;
  Tensor w = tree.proj.weight().variable.value();
  w.copy_from(numbers(w.shape(), 1));
  for (Parameter* p : tree.parameters())
    if (p->name.ends_with(".bias")) Tensor(p->variable.value()).copy_from(numbers({6}, 2));
  const Tensor x = numbers({3, 4}, 3), bias = numbers({6}, 2);
  const Variable y = tree.proj.forward(Variable(x));
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t column = 0; column < 6; ++column) {
      double sum = bias.data<float>()[column];
      for (std::int64_t k = 0; k < 4; ++k)
        sum += static_cast<double>(x.data<float>()[row * 4 + k]) * w.data<float>()[column * 4 + k];
      EXPECT_NEAR(y.value().data<float>()[row * 6 + column], sum, 1e-5);
    }
}

TEST(Linear, OptionsHaveNames) {
  const DType bf16 = DType::bf16;
  Linear plain(4, 6), biased(4, 6, {.bias = true, .init_std = 0.5f, .parameters = {.dtype = bf16}});
  EXPECT_EQ(plain.parameters().size(), 1u);
  EXPECT_EQ(plain.weight().init_std, 0.02f);
  ASSERT_EQ(biased.parameters().size(), 2u);
  EXPECT_EQ(biased.weight().init_std, 0.5f);
  EXPECT_EQ(biased.parameters()[1]->initializer, Initializer::zeros);
  EXPECT_EQ(biased.parameters()[1]->variable.value().dtype(), bf16);
}

TEST(Linear, MatrixSharesValueAndGradientWithTheWeight) {
  Tree tree;
  EXPECT_EQ(tree.proj.matrix().acquire().value().raw_data(), tree.proj.weight().variable.value().raw_data());
  EXPECT_EQ(tree.proj.matrix().gradient(), tree.proj.weight().variable.gradient());
}

TEST(Linear, FusedPartsHaveNamesOfTheirOwn) {
  Tree tree;
  const std::vector<ParameterPiece>& pieces = tree.proj.weight().pieces;
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].hf_name, "layers.0.q_proj.weight");
  EXPECT_EQ(pieces[1].hf_name, "layers.0.k_proj.weight");
  EXPECT_EQ(pieces[1].row_begin, 4);
  EXPECT_EQ(pieces[1].rows, 2);
  EXPECT_THROW(Linear(4, 6, {.parts = {{"q_proj", 4}, {"k_proj", 3}}}), Error);
}

TEST(Linear, KernelParametersAreRemovedWithTheKernel) {
  Tree tree;
  const std::vector<std::string> own{"layers.0.proj.weight", "layers.0.proj.bias"};
  EXPECT_EQ(names(tree), own);
  tree.proj.set_kernel(std::make_shared<WithSecondMatrix>(true));
  EXPECT_EQ(names(tree), (std::vector<std::string>{own[0], own[1], "layers.0.proj.second.weight"}));
  EXPECT_EQ(tree.parameters()[2]->pieces.front().hf_name, "layers.0.proj.second.weight");
  tree.proj.set_kernel(std::make_shared<WithSecondMatrix>(true));
  EXPECT_EQ(names(tree).size(), 3u);
  tree.proj.set_kernel(high_precision_linear_kernel());
  EXPECT_EQ(names(tree), own);
}

// A kernel's parameters train, alone where the rest is frozen; frozen ones stay.
TEST(Linear, ParametersOfAKernelAreOptimisedOrFrozenByThemselves) {
  for (const bool trainable : {true, false}) {
    Tree tree;
    for (Parameter* p : tree.parameters()) {
      Tensor(p->variable.value()).copy_from(numbers(p->variable.value().shape(), 4));
      p->variable = Variable(p->variable.value());  // frozen
    }
    tree.proj.set_kernel(std::make_shared<WithSecondMatrix>(trainable));
    AdamW optimizer(tree.parameters(), {});
    ASSERT_EQ(optimizer.parameters().size(), trainable ? 1u : 0u);
    const Tensor before = tree.proj.weight().variable.value().clone();
    autograd::Tape tape;
    Variable y;
    const Variable x = Variable::leaf(numbers({3, 4}, 5));
    {
      const autograd::TapeScope scope(tape);
      y = tree.proj.forward(x);
    }
    y.gradient()->contribute(numbers({3, 6}, 6));
    tape.backward();
    Tensor scale = Tensor::empty({1}, DType::f32);
    scale.data<float>()[0] = 1.0f;
    optimizer.step(0.1, 1, scale);
    const Tensor second = tree.parameters()[2]->variable.value(), w = tree.proj.weight().variable.value();
    for (std::int64_t i = 0; i < 24; ++i) {
      EXPECT_EQ(second.data<float>()[i] != 0.0f, trainable);
      EXPECT_EQ(w.data<float>()[i], before.data<float>()[i]);
    }
  }
}

}  // namespace
}  // namespace quench::nn
