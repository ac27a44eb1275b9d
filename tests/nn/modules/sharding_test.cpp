// Which rows a process holds, and what it makes of them.

#include <gtest/gtest.h>

#include <cstring>

#include "nn/modules/initialize.h"
#include "nn/modules/parameter.h"

namespace quench::nn {
namespace {

TEST(Sharding, PartsTileTheRowsInEqualChunks) {
  for (const std::int64_t count : {1, 2, 3, 4, 7})
    for (const std::int64_t rows : {1, 2, 5, 8, 509}) {
      std::int64_t next = 0;
      for (std::int64_t index = 0; index < count; ++index) {
        const Sharding sharding{index, count};
        const ShardSpec part = sharding.of(rows);
        EXPECT_EQ(part.row_begin, next);
        EXPECT_LE(part.rows, sharding.chunk(rows));
        EXPECT_TRUE(part.rows == sharding.chunk(rows) || part.row_begin + part.rows == rows);
        next += part.rows;
      }
      EXPECT_EQ(next, rows);
    }
}

Parameter made(const Sharding& sharding) {
  ParameterOptions options;
  options.sharding = sharding;
  Parameter parameter = make_parameter({5, 3}, options);
  parameter.name = "weight";
  parameter.pieces = {{"first.weight", 0, 2}, {"second.weight", 2, 3}};
  return parameter;
}

TEST(Sharding, ShardsInitializeToRowsOfTheWhole) {
  Parameter whole = made({});
  initialize_parameter(whole, 11);
  EXPECT_FALSE(whole.padded.defined());
  for (std::int64_t index = 0; index < 4; ++index) {
    Parameter part = made({index, 4});
    initialize_parameter(part, 11);
    const Tensor expected = whole.variable.value().narrow(0, part.shard.row_begin, part.shard.rows);
    ASSERT_EQ(part.variable.value().shape(), expected.shape());
    EXPECT_EQ(std::memcmp(part.variable.value().raw_data(), expected.raw_data(), expected.nbytes()), 0);
    // What is exchanged has as many rows on every process; those after the shard are zeros.
    ASSERT_EQ(part.padded.size(0), 2);
    for (std::int64_t i = part.shard.rows * 3; i < 6; ++i) EXPECT_EQ(part.padded.data<float>()[i], 0.0f);
  }
}

TEST(Sharding, WholeParameterIsCutToItsShard) {
  Parameter parameter = made({});
  shard_parameter(parameter, {1, 2});
  EXPECT_EQ(parameter.shard.row_begin, 3);
  EXPECT_EQ(parameter.shard.rows, 2);
  EXPECT_EQ(parameter.variable.value().shape(), (Shape{2, 3}));
  EXPECT_TRUE(parameter.variable.requires_grad());
  EXPECT_THROW(shard_parameter(parameter, {0, 2}), Error);
}

}  // namespace
}  // namespace quench::nn
