// Guarantees of every optimizer in the table: it minimises, its state is complete, partial updates and shards of
// parameters are bit-identical to the whole.

#include "nn/optim/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "tests/seams/added_optimizer.h"  // one more entry of the table

namespace quench::nn {
namespace {

float number(std::uint64_t stream, std::int64_t i) {
  const PhiloxBlock block = random_block({1, stream, 0}, static_cast<std::uint64_t>(i));
  return static_cast<float>(block.words[0]) / 4294967296.0f - 0.5f;
}

// A matrix large enough for codes, one that is not, a vector, an embedding, learned scales.
struct Model {
  std::vector<Parameter> parameters;
  std::vector<Tensor> targets;

  explicit Model(DType dtype, std::int64_t row_begin = 0, std::int64_t rows = -1) {
    const auto add = [&](const std::string& name, const Shape& shape, std::vector<ParameterPiece> pieces,
                         bool scales = false) {
      Parameter p = make_parameter(shape, {.dtype = dtype, .grad_dtype = DType::f32});
      p.name = name;
      p.pieces = std::move(pieces);
      p.scales = scales;
      if (rows >= 0 && shape[0] == kRows) {  // some rows of it
        Shape local = shape;
        local[0] = rows;
        p.shard = {row_begin, rows};
        p.variable = autograd::Variable::leaf(Tensor::empty(local, dtype), DType::f32);
      }
      const std::int64_t offset = p.shard.row_begin * (shape.numel() / shape[0]);
      Tensor value = p.variable.value(), target = Tensor::empty(value.shape(), DType::f32);
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        const float above = scales ? 0.75f : 0.0f;  // scales are positive
        const float x = above + number(hash64(name), offset + i);
        if (dtype == DType::bf16)
          value.data<bfloat16>()[i] = bfloat16(x);
        else
          value.data<float>()[i] = x;
        target.data<float>()[i] = above + number(hash64(name) + 1, offset + i);
      }
      parameters.push_back(std::move(p));
      targets.push_back(target);
    };
    add("layer.fused.weight", {kRows, 512}, {{"layer.a.weight", 0, 8}, {"layer.b.weight", 8, 4}});
    add("layer.small.weight", {5, 7}, {{"layer.small.weight", 0, 5}});
    add("layer.norm.weight", {9}, {{"layer.norm.weight", 0, 9}});
    add("embed_tokens.weight", {10, 256}, {{"embed_tokens.weight", 0, 10}});
    add("layer.fused.weight_scale", {kRows, 512}, {}, true);
  }
  static constexpr std::int64_t kRows = 12;

  [[nodiscard]] std::vector<Parameter*> pointers() {
    std::vector<Parameter*> all;
    for (Parameter& p : parameters) all.push_back(&p);
    return all;
  }
  // Half the squared distance from the targets; its gradient is contributed.
  double loss() {
    double sum = 0;
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      const Tensor value = parameters[k].variable.value();
      const Tensor gradient = Tensor::empty(value.shape(), DType::f32);
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        const float x =
            value.dtype() == DType::bf16 ? static_cast<float>(value.data<bfloat16>()[i]) : value.data<float>()[i];
        const float d = x - targets[k].data<float>()[i];
        gradient.data<float>()[i] = d;
        sum += 0.5 * d * d;
      }
      parameters[k].variable.gradient()->contribute(gradient);
    }
    return sum;
  }
};

class EveryOptimizer : public ::testing::TestWithParam<std::size_t> {
 protected:
  [[nodiscard]] static std::unique_ptr<Optimizer> make(const std::vector<Parameter*>& parameters,
                                                       const OptimizerOptions& options) {
    return make_optimizer(optimizer_table()[GetParam()], parameters, options);
  }
  [[nodiscard]] static OptimizerOptions options(DType dtype) {
    return {.weight_decay = 0, .master_weights = dtype == DType::bf16, .exclude_from_muon = [](const Parameter& p) {
              return p.name.starts_with("embed");
            }};
  }
  [[nodiscard]] static Tensor one() {
    Tensor scale = Tensor::empty({1}, DType::f32);
    scale.data<float>()[0] = 1.0f;
    return scale;
  }
  static void run(Model& model, Optimizer& optimizer, int steps, double lr) {
    for (int step = 1; step <= steps; ++step) {
      (void)model.loss();
      optimizer.step(lr, step, one());
      optimizer.zero_grad();
    }
  }
  static void expect_same_bytes(const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.nbytes(), b.nbytes());
    EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()), 0);
  }
};

TEST_P(EveryOptimizer, Minimises) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Model model(dtype);
    const auto optimizer = make(model.pointers(), options(dtype));
    const double before = model.loss();
    optimizer->zero_grad();
    run(model, *optimizer, 60, 0.02);
    EXPECT_LT(model.loss(), 0.25 * before);
  }
}

TEST_P(EveryOptimizer, StateIsCompleteAndNamedOnce) {
  Model model(DType::bf16), again(DType::bf16);
  const auto whole = make(model.pointers(), options(DType::bf16));
  run(model, *whole, 3, 0.02);
  // Parameters and state together are all that a further step depends on.
  const auto copy = make(again.pointers(), options(DType::bf16));
  for (std::size_t k = 0; k < model.parameters.size(); ++k)
    Tensor(again.parameters[k].variable.value()).copy_from(model.parameters[k].variable.value());
  const auto from = whole->state(), to = copy->state();
  ASSERT_EQ(from.size(), to.size());
  std::set<std::string> names;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    EXPECT_TRUE(names.insert(from[i].name).second) << from[i].name;
    EXPECT_TRUE(from[i].name.starts_with("optimizer.") && from[i].name.ends_with(from[i].parameter->name));
    EXPECT_EQ(from[i].tensor.size(0), from[i].parameter->variable.value().size(0)) << "axis 0 is the parameter's";
    Tensor(to[i].tensor).copy_from(from[i].tensor);
    bytes += static_cast<std::int64_t>(from[i].tensor.nbytes());
  }
  std::int64_t held = 0;
  for (const ParameterState& state : whole->parameter_states())
    for (const Tensor* tensor : state.tensors) held += static_cast<std::int64_t>(tensor->nbytes());
  EXPECT_EQ(held, bytes) << "what an offloader moves is what a checkpoint holds";
  (void)model.loss();
  (void)again.loss();
  whole->step(0.02, 4, one());
  copy->step(0.02, 4, one());
  for (std::size_t k = 0; k < model.parameters.size(); ++k)
    expect_same_bytes(again.parameters[k].variable.value(), model.parameters[k].variable.value());
}

TEST_P(EveryOptimizer, PartsOfAnUpdateGiveTheBitsOfTheWhole) {
  Model model(DType::bf16), parts(DType::bf16);
  const auto whole = make(model.pointers(), options(DType::bf16));
  const auto divided = make(parts.pointers(), options(DType::bf16));
  for (int step = 1; step <= 2; ++step) {
    (void)model.loss();
    (void)parts.loss();
    whole->step(0.02, step, one());
    whole->zero_grad();
    for (const ParameterRange part : {ParameterRange{2, 5}, ParameterRange{0, 1}, ParameterRange{1, 2}}) {
      divided->step(0.02, step, one(), part);
      divided->zero_grad(part);
    }
  }
  for (std::size_t k = 0; k < model.parameters.size(); ++k)
    expect_same_bytes(parts.parameters[k].variable.value(), model.parameters[k].variable.value());
}

TEST_P(EveryOptimizer, ShardsGiveTheBitsOfTheWholeOrAreRefused) {
  Model model(DType::bf16);
  OptimizerOptions choice = options(DType::bf16);
  choice.master_weights = false;  // stochastic rounding
  const auto whole = make(model.pointers(), choice);
  run(model, *whole, 2, 0.02);
  std::int64_t begin = 0;
  for (const std::int64_t rows : {1, 8, 3}) {
    Model shard(DType::bf16, begin, rows);
    try {
      const auto optimizer = make(shard.pointers(), choice);
      run(shard, *optimizer, 2, 0.02);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("layer.fused.weight"), std::string::npos);
      break;
    }
    for (const std::size_t k : {0u, 4u})
      expect_same_bytes(shard.parameters[k].variable.value(),
                        model.parameters[k].variable.value().narrow(0, begin, rows));
    begin += rows;
  }
}

// Whatever decay and rates, scales are positive numbers; without a gradient they stay.
TEST_P(EveryOptimizer, LearnedScalesStayPositiveAndAreNotDecayed) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double rate : {1e-3, 1.0, 1e3}) {
      Model model(dtype);
      OptimizerOptions choice = options(dtype);
      choice.weight_decay = 0.5;
      choice.scale_lr_multiplier = 1e2;
      const auto optimizer = make(model.pointers(), choice);
      const Tensor scales = model.parameters.back().variable.value(), before = scales.clone();
      optimizer->step(rate, 1, one());
      expect_same_bytes(scales, before);
      optimizer->zero_grad();
      for (int step = 2; step <= 30; ++step) {
        const Tensor gradient = Tensor::empty(scales.shape(), DType::f32);
        for (std::int64_t i = 0; i < gradient.numel(); ++i)
          gradient.data<float>()[i] = number(static_cast<std::uint64_t>(i % 3 == 0 ? step : 1), i);
        model.parameters.back().variable.gradient()->contribute(gradient);
        optimizer->step(rate, step, one());
        optimizer->zero_grad();
      }
      const Tensor values = Tensor::empty(scales.shape(), DType::f32);
      cast({scales, values});
      for (std::int64_t i = 0; i < values.numel(); ++i)
        ASSERT_TRUE(values.data<float>()[i] > 0 && std::isfinite(values.data<float>()[i])) << i << ", rate " << rate;
    }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryOptimizer, ::testing::Range<std::size_t>(0, optimizer_table().size()),
                         [](const auto& place) { return std::string(optimizer_table()[place.param].name); });

TEST(OptimizerTable, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    (void)find_optimizer("adamx");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_NE(std::string(error.what()).find("adamw, adamw_8bit"), std::string::npos);
  }
}

}  // namespace
}  // namespace quench::nn
