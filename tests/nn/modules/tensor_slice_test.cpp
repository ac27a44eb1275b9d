// Slices of weights on the ranks of a tensor group: their values, and where they are in the whole.

#include <gtest/gtest.h>

#include <cstring>

#include "nn/modules/initialize.h"
#include "nn/modules/slice_map.h"
#include "nn/spec/tensor_parallel.h"

namespace quench::nn {
namespace {

// [10,6] as a whole, of two pieces of 4 and 6 rows.
Parameter slice_of(TensorSplit split, std::int64_t index, std::int64_t count, const Sharding& sharding = {}) {
  ParameterOptions options;
  options.sharding = sharding;
  options.tensor = {index, count};
  const std::int64_t rows = split == TensorSplit::rows ? count : 1, columns = split == TensorSplit::columns ? count : 1;
  Parameter parameter = make_parameter({10 / rows, 6 / columns}, options);
  parameter.slice.split = split;
  parameter.name = "weight";
  parameter.pieces = {{"first.weight", 0, 4 / rows}, {"second.weight", 4 / rows, 6 / rows}};
  initialize_parameter(parameter, 11);
  return parameter;
}

TEST(TensorSlice, SlicesJoinToTheWhole) {
  const Parameter whole = slice_of(TensorSplit::none, 0, 1);
  for (const TensorSplit split : {TensorSplit::rows, TensorSplit::columns}) {
    std::vector<Parameter> slices;
    for (std::int64_t i = 0; i < 2; ++i) slices.push_back(slice_of(split, i, 2));
    EXPECT_EQ(whole_shape(slices[0]), (Shape{10, 6}));
    const Shape& own = slices[0].global_shape;
    const Tensor all = Tensor::empty({2 * own[0], own[1]}, DType::f32);
    for (std::int64_t i = 0; i < 2; ++i)
      all.narrow(0, i * own[0], own[0]).copy_from(slices[static_cast<std::size_t>(i)].variable.value());
    const Tensor joined = join_slices(slices[0], all);
    EXPECT_EQ(std::memcmp(joined.raw_data(), whole.variable.value().raw_data(), joined.nbytes()), 0);
  }
}

TEST(TensorSlice, RowsOfAShardAreNamedInTheWhole) {
  // Rows 2-3 of the first piece and 3-5 of the second; the second of three shards has the middle two of these five.
  const Parameter part = slice_of(TensorSplit::rows, 1, 2, {1, 3});
  const std::vector<SliceRows> rows = own_rows_of(part);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].row, 2);
  EXPECT_EQ(rows[0].whole_row, 4 + 3);
  EXPECT_EQ(rows[0].rows, 2);
  const Parameter all = slice_of(TensorSplit::rows, 1, 2);
  ASSERT_EQ(own_rows_of(all).size(), 2u);
  EXPECT_EQ(own_rows_of(all)[0].whole_row, 2);
  EXPECT_EQ(own_rows_of(all)[1].whole_row, 7);
  EXPECT_EQ(first_row_of(all, all.pieces[1]), 3);
}

TEST(TensorSlice, OneOfTheRanksCountsSharedValues) {
  EXPECT_FALSE(slice_of(TensorSplit::none, 0, 1).slice.is_shared());
  EXPECT_TRUE(slice_of(TensorSplit::none, 1, 2).slice.is_copy());
  EXPECT_FALSE(slice_of(TensorSplit::none, 0, 2).slice.is_copy());
  EXPECT_FALSE(slice_of(TensorSplit::rows, 1, 2).slice.is_copy());
}

TEST(TensorSlice, ModelsThatCannotBeSplitNameTheReason) {
  const auto fault = [](const std::string& model, std::int64_t ranks) {
    return tensor_parallel_fault(
        parse_model_config(Json::parse(R"({"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 256, )" +
                                       model + "}"),
                           "config.json"),
        ranks);
  };
  EXPECT_EQ(fault(R"("model_type": "llama")", 2), "");
  EXPECT_EQ(fault(R"("model_type": "llama")", 1), "");
  EXPECT_EQ(fault(R"("model_type": "llama")", 3), "vocab_size 128 is not divisible by 3");
  EXPECT_EQ(fault(R"("model_type": "llama")", 4), "num_key_value_heads 2 is not divisible by 4");
  EXPECT_NE(fault(R"("model_type": "llama", "mlp_bias": true)", 2).find("mlp_bias"), std::string::npos);
  EXPECT_NE(fault(R"("model_type": "olmo2")", 2).find("OLMo 2"), std::string::npos);
  EXPECT_NE(fault(R"("model_type": "phi3")", 2).find("qkv_proj"), std::string::npos);
  EXPECT_NE(fault(R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)", 2).find("experts"),
            std::string::npos);
}

}  // namespace
}  // namespace quench::nn
