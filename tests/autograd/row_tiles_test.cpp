#include "autograd/regions/row_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "autograd/functions.h"
#include "autograd/recompute.h"
#include "autograd/swiglu.h"
#include "core/memory/allocator.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::floats;
using ::testing::HasSubstr;
using testing::randn;

constexpr std::int64_t kTiledRows = 10, kTiledColumns = 8;

// A feed-forward part: down(swiglu(up(x))).
struct TiledFeedForward {
  Variable up = Variable::leaf(randn({12, kTiledColumns}, 1)), down = Variable::leaf(randn({kTiledColumns, 6}, 2));

  [[nodiscard]] Variable operator()(const Variable& x) const { return linear(swiglu(linear(x, up)), down); }
  [[nodiscard]] RowRegion region() const {
    return [this](const Variable& x, std::int64_t, bool) { return (*this)(x); };
  }
};

struct TiledResult {
  std::vector<float> value, dx, dup, ddown;
};

// dy = the number of the element.
TiledResult run_tiled(const std::function<Variable(const TiledFeedForward&, const Variable&)>& function) {
  const TiledFeedForward part;
  const Variable x = Variable::leaf(randn({kTiledRows, kTiledColumns}, 3));
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = function(part, x);
  }
  const Tensor dy = Tensor::empty({kTiledRows, kTiledColumns}, DType::f32);
  for (std::int64_t i = 0; i < dy.numel(); ++i) dy.data<float>()[i] = static_cast<float>(i % 13) - 6.0f;
  y.gradient()->contribute(dy);
  tape.backward();
  EXPECT_EQ(tape.size(), 0u);
  const auto numbers = [](const Tensor& tensor) { return tensor.defined() ? floats(tensor) : std::vector<float>(); };
  return {numbers(y.fused().form() == ValueForm::stored ? y.value() : Tensor()), numbers(x.grad()),
          numbers(part.up.grad()), numbers(part.down.grad())};
}

void expect_near_sums(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5f * (1 + std::abs(expected[i])));
}

TEST(RowTiles, GiveTheRowsOfTheWhole) {
  const TiledResult whole = run_tiled([](const TiledFeedForward& part, const Variable& x) { return part(x); });
  for (const std::int64_t rows : {1, 3, 5, 9, 10, 64}) {
    SCOPED_TRACE(rows);
    const TiledResult tiled = run_tiled([rows](const TiledFeedForward& part, const Variable& x) {
      return in_row_tiles(part.region(), x, {.rows = rows});
    });
    if (rows >= kTiledRows) {
      EXPECT_EQ(tiled.value, whole.value);
      EXPECT_EQ(tiled.dx, whole.dx);
      EXPECT_EQ(tiled.dup, whole.dup);
      EXPECT_EQ(tiled.ddown, whole.ddown);
    }
    // GEMMs of other numbers of rows add up in another order.
    expect_near_sums(tiled.value, whole.value);
    expect_near_sums(tiled.dx, whole.dx);
    expect_near_sums(tiled.dup, whole.dup);
    expect_near_sums(tiled.ddown, whole.ddown);
  }
}

TEST(RowTiles, ChangeNoBitOfElementwiseFunctions) {
  const auto function = [](const Variable& x) { return swiglu(concatenate_columns(x, scale(x, 0.7f))); };
  const TiledResult whole = run_tiled([&](const TiledFeedForward&, const Variable& x) { return function(x); });
  for (const std::int64_t rows : {1, 4, 9}) {
    const TiledResult tiled = run_tiled([&](const TiledFeedForward&, const Variable& x) {
      return in_row_tiles([&](const Variable& part, std::int64_t, bool) { return function(part); }, x, {.rows = rows});
    });
    EXPECT_EQ(tiled.value, whole.value);
    EXPECT_EQ(tiled.dx, whole.dx);
  }
}

// Parameters' gradients are those of one pass a tile, the first tile first.
TEST(RowTiles, AccumulateGradientsOfParametersInTheOrderOfTiles) {
  const TiledResult tiled = run_tiled(
      [](const TiledFeedForward& part, const Variable& x) { return in_row_tiles(part.region(), x, {.rows = 4}); });
  const TiledFeedForward part;
  const Tensor x = randn({kTiledRows, kTiledColumns}, 3);
  for (const std::int64_t first : {0, 4, 8}) {
    const std::int64_t count = std::min<std::int64_t>(4, kTiledRows - first);
    Tape tape;
    Variable y;
    {
      const TapeScope scope(tape);
      y = part(Variable(x.narrow(0, first, count)));
    }
    const Tensor dy = Tensor::empty({count, kTiledColumns}, DType::f32);
    for (std::int64_t i = 0; i < dy.numel(); ++i)
      dy.data<float>()[i] = static_cast<float>((first * kTiledColumns + i) % 13) - 6.0f;
    y.gradient()->contribute(dy);
    tape.backward();
  }
  EXPECT_EQ(tiled.dup, floats(part.up.grad()));
  EXPECT_EQ(tiled.ddown, floats(part.down.grad()));
}

TEST(RowTiles, LeaveOutAValueThatNothingReads) {
  const auto in_tiles = [](bool needed, int& calls) {
    return run_tiled([needed, &calls](const TiledFeedForward& part, const Variable& x) {
      Variable y = in_row_tiles(
          [&](const Variable& rows, std::int64_t, bool again) {
            calls += again ? 0 : 1;
            return part(rows);
          },
          x, {.rows = 4, .value_needed = needed});
      EXPECT_EQ(y.shape(), Shape({kTiledRows, kTiledColumns}));
      EXPECT_EQ(y.fused().form() == ValueForm::stored, needed);
      return y;
    });
  };
  int with = 0, without = 0;
  const TiledResult read = in_tiles(true, with), unread = in_tiles(false, without);
  EXPECT_EQ(unread.dx, read.dx);
  EXPECT_EQ(unread.dup, read.dup);
  EXPECT_EQ(unread.ddown, read.ddown);
  EXPECT_EQ(with, 3);
  EXPECT_EQ(without, 1) << "the first tile says which parameters are used";
}

TEST(RowTiles, WithoutTapeAreAPlainCall) {
  const TiledFeedForward part;
  const Variable x(randn({kTiledRows, kTiledColumns}, 3));
  expect_near_sums(floats(in_row_tiles(part.region(), x, {.rows = 3}).value()), floats(part(x).value()));
  EXPECT_FALSE(in_row_tiles(part.region(), x, {.rows = 3}).requires_grad());
  // Where nothing is recorded, the value is the result.
  expect_near_sums(floats(in_row_tiles(part.region(), x, {.rows = 3, .value_needed = false}).value()),
                   floats(part(x).value()));
}

TEST(RowTiles, TrainParametersOfAnInputWithoutGradient) {
  const TiledFeedForward part;
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = in_row_tiles(part.region(), Variable(randn({kTiledRows, kTiledColumns}, 3)), {.rows = 4});
  }
  y.gradient()->contribute(y.value().clone());
  tape.backward();
  EXPECT_TRUE(part.up.grad().defined());
}

TEST(RowTiles, ReadyHooksFireOnceAfterTheLastTile) {
  for (const bool in_layer : {false, true}) {
    const TiledFeedForward part;
    int fired = 0, tiles = 0;
    part.up.gradient()->on_ready([&] {
      ++fired;
      EXPECT_EQ(tiles, 3);
    });
    const auto layer = [&](const Variable& x) {
      return in_row_tiles(
          [&](const Variable& rows, std::int64_t, bool again) {
            tiles += again ? 1 : 0;
            return part(rows);
          },
          x, {.rows = 4});
    };
    const Variable x = Variable::leaf(randn({kTiledRows, kTiledColumns}, 3));
    Tape tape;
    Variable y;
    {
      const TapeScope scope(tape);
      y = in_layer ? recompute([&](const std::vector<Variable>& in) { return std::vector{layer(in[0])}; }, {x}).front()
                   : layer(x);
    }
    y.gradient()->contribute(y.value().clone());
    tape.backward();
    EXPECT_EQ(fired, 1);
  }
}

// A tile's random draws are its own, and those of its recompute.
TEST(RowTiles, DrawsDifferBetweenTilesAndRepeatInTheBackwardPass) {
  const TiledFeedForward part;
  std::vector<std::uint64_t> forward, backward;
  const auto layer = [&](const Variable& x) {
    return in_row_tiles(
        [&](const Variable& rows, std::int64_t, bool again) {
          (again ? backward : forward).push_back(Tape::current_pass().value_or(0));
          return part(rows);
        },
        x, {.rows = 4});
  };
  for (const bool in_layer : {false, true}) {
    forward.clear();
    backward.clear();
    const Variable x = Variable::leaf(randn({kTiledRows, kTiledColumns}, 3));
    Tape tape;
    tape.set_pass((std::uint64_t{7} << 32) + 5);
    Variable y;
    {
      const TapeScope scope(tape);
      y = in_layer ? recompute([&](const std::vector<Variable>& in) { return std::vector{layer(in[0])}; }, {x}).front()
                   : layer(x);
    }
    y.gradient()->contribute(y.value().clone());
    tape.backward();
    EXPECT_EQ(std::set(forward.begin(), forward.end()).size(), 3u);
    EXPECT_EQ(std::set(forward.begin(), forward.end()), std::set(backward.begin(), backward.end()));
    EXPECT_EQ(backward.size(), 3u);
  }
  EXPECT_FALSE(Tape::current_pass().has_value());
}

// On the meta device: intermediates are those of a tile.
TEST(RowTiles, HoldTheIntermediatesOfOneTile) {
  constexpr Device kTiledOn{DeviceType::meta, 0};
  constexpr std::int64_t kMany = 4096, kWidth = 64, kInner = 512;
  const auto peak = [&](std::int64_t rows) {
    const Variable up = Variable::leaf(Tensor::empty({2 * kInner, kWidth}, DType::f32, kTiledOn));
    const Variable down = Variable::leaf(Tensor::empty({kWidth, kInner}, DType::f32, kTiledOn));
    const Variable x = Variable::leaf(Tensor::empty({kMany, kWidth}, DType::f32, kTiledOn));
    Allocator& memory = Allocator::of(kTiledOn);
    memory.reset_peak();
    const std::int64_t before = memory.stats().current;
    Tape tape;
    Variable y;
    {
      const TapeScope scope(tape);
      y = in_row_tiles([&](const Variable& part, std::int64_t, bool) { return linear(swiglu(linear(part, up)), down); },
                       x, {.rows = rows});
    }
    y.gradient()->contribute(Tensor::empty({kMany, kWidth}, DType::f32, kTiledOn));
    tape.backward();
    return memory.stats().peak - before;
  };
  const std::int64_t intermediate = kMany * kInner * 4;  // 8 MiB
  EXPECT_GT(peak(kMany), 4 * intermediate);
  EXPECT_LT(peak(kMany / 16), intermediate);
}

TEST(RowTiles, RefuseWhatHasNoRows) {
  const TiledFeedForward part;
  const auto refusal = [&](const Shape& shape, std::int64_t rows) -> std::string {
    try {
      (void)in_row_tiles(part.region(), Variable(Tensor::zeros(shape, DType::f32)), {.rows = rows});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({4, kTiledColumns}, 0), HasSubstr("tiles of 0 rows"));
  EXPECT_THAT(refusal({kTiledColumns}, 2), HasSubstr("expected a matrix"));
  EXPECT_THAT(refusal({0, kTiledColumns}, 2), HasSubstr("at least one row"));
}

}  // namespace
}  // namespace quench::autograd
