// Weights of few levels as files hold them: the values that training computed with.

#include "core/number/float_types.h"
#include "core/ops/quantize/weight_grids.h"
#include "export/formats/compressed_tensors/writer.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/writer.h"
#include "export/table/format.h"
#include "recipes/qat/scale_parameter.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr std::int64_t kGridRows = 3, kGridWidth = 512;
constexpr const char* kGridLayer = "model.layers.0.self_attn.v_proj";
constexpr const char* kGridModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16,
    "hidden_size": 512, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true})";

// A weight, scales that no rule gives, and what a layer computes with.
struct Trained {
  Tensor weight, scales, values;
};

Trained trained(const OperandScheme& scheme, DType dtype, std::optional<DType> scale_dtype) {
  Trained made{normal_weight({kGridRows, kGridWidth}, dtype), {}, {}};
  const std::int64_t groups = scheme.group_size > 0 ? kGridWidth / scheme.group_size : 1;
  const Tensor parameter = Tensor::empty({kGridRows, groups}, dtype);
  made.scales = Tensor::empty({kGridRows, groups}, DType::f32);
  for (std::int64_t i = 0; i < parameter.numel(); ++i) {
    const float scale = 0.03f + 0.0123f * random_normal({5, 5, 0}, static_cast<std::uint64_t>(i)) * 0.3f;
    if (dtype == DType::bf16)
      parameter.data<bfloat16>()[i] = bfloat16(scale);
    else
      parameter.data<float>()[i] = scale;
    made.scales.data<float>()[i] = dtype == DType::bf16 ? float(bfloat16(scale)) : scale;
  }
  const recipes::FakeFormat format{
      .kind = recipes::FakeFormat::Kind::integer,
      .integers = {
          .bits = scheme.bits, .mapping = scheme.mapping, .group_size = scheme.group_size, .scale_dtype = scale_dtype}};
  made.values =
      recipes::fake_quantize(made.weight, format, false, recipes::used_scales(parameter, format.integers)).values;
  return made;
}

ModelTensor stored(const Trained& made, const Scheme& scheme, std::optional<DType> scale_dtype) {
  ModelTensor t = tensor(kGridLayer, made.weight, nullptr);
  static nn::Parameter parameter;
  t.parameter = &parameter;
  t.scheme = &scheme;
  t.quantized = std::make_shared<QuantizedWeight>(
      round_under_scales(made.weight, scheme.weights, made.scales, t.name, scale_dtype));
  return t;
}

std::vector<const Scheme*> weight_schemes() {
  std::vector<const Scheme*> schemes;
  for (const WeightGrid& grid : few_level_grids())
    for (const char* group : {"", "_g32", "_g64", "_g128", "_g256"})
      schemes.push_back(&require_scheme(fmt::format("{}_weight_only{}", grid.name, group), "scheme"));
  return schemes;
}

TEST(FewLevelFiles, FoldersHoldTheTrainedValues) {
  for (const Scheme* scheme : weight_schemes())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const char* format : {"compressed-tensors", "torchao"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", scheme->name, to_string(dtype), format));
        const TempDir folder;
        const Trained made = trained(scheme->weights, dtype, std::nullopt);
        const std::vector<ModelTensor> tensors{stored(made, *scheme, std::nullopt)};
        const nn::ModelConfig config = nn::parse_model_config(Json::parse(kGridModel), "config.json");
        const Json written =
            require_export_format(format, "format").write({tensors, config, folder.path(), std::uint64_t{1} << 30});
        const auto read = open_stored_weights(folder.path(), config_of(written));
        EXPECT_TRUE(equal_bytes(unpacked(read->read_packed(tensors[0].name), dtype), made.values));
      }
}

// Blocks of Q4_0 for groups of 32, of TQ2_0 and Q2_K for groups of 256.
TEST(FewLevelFiles, GgufFilesHoldTheTrainedValuesUnderF16Scales) {
  for (const Scheme* scheme : weight_schemes()) {
    const std::int64_t group = scheme->weights.group_size;
    EXPECT_EQ(gguf_problem(*scheme).empty(), group == 32 || group == 256) << scheme->name;
    if (!gguf_problem(*scheme).empty()) continue;
    SCOPED_TRACE(scheme->name);
    const TempDir folder;
    const Trained made = trained(scheme->weights, DType::f32, DType::f16);
    const std::vector<ModelTensor> tensors{stored(made, *scheme, DType::f16)};
    const nn::ModelConfig config = nn::parse_model_config(Json::parse(kGridModel), "config.json");
    write_gguf({tensors, config, folder.path(), std::uint64_t{1} << 30});
    const auto read = open_gguf(folder.path() / kGgufFileName, Json::parse(kGridModel));
    EXPECT_TRUE(equal_bytes(unpacked(read->read_packed(tensors[0].name)), made.values));
    const bool odd = scheme->weights.mapping == IntMapping::stretched;
    const std::int64_t bytes = group == 32 ? 8 * 18 : odd ? 84 : 66;
    const GgufHead head = read_gguf_head(folder.path() / kGgufFileName);
    ASSERT_EQ(head.tensors.size(), 1u);
    EXPECT_EQ(head.tensors[0].bytes, static_cast<std::uint64_t>(kGridRows * kGridWidth / 256 * bytes));
  }
}

TEST(FewLevelFiles, MethodsWithoutARuleForThemAreRefused) {
  for (const Quantizer& quantizer : quantizers()) {
    const bool rounds = quantizer.name == "rtn" || quantizer.name == "awq";
    const std::string problem = quantizer.problem(*find_scheme("ternary_weight_only_g64"));
    EXPECT_EQ(problem.empty(), rounds) << quantizer.name << ": " << problem;
  }
  EXPECT_THAT(require_quantizer("gptq", "method").problem(*find_scheme("seq_weight_only")),
              HasSubstr("no rule for grids of few levels"));
}

}  // namespace
}  // namespace quench
