// The table of readers against the schemes, formats and facts that it is made of.

#include "export/table/reader_table.h"

#include <gmock/gmock.h>

#include "export/table/fused_layers.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

ReaderVerdict verdict(std::string_view reader, std::string_view format, std::string_view scheme,
                      DType dtype = DType::bf16, ExpertStorage experts = ExpertStorage::none, bool embeddings = false) {
  return reader_verdict(folder_readers().require(reader), export_formats().require(format),
                        {scheme.empty() ? nullptr : &require_scheme(scheme, "scheme"), dtype, experts, embeddings});
}

std::string refused_readers(std::string_view format, std::string_view scheme, std::string_view reader = {},
                            DType dtype = DType::bf16) {
  try {
    (void)check_readers(export_formats().require(format), {&require_scheme(scheme, "scheme"), dtype},
                        reader.empty() ? nullptr : &folder_readers().require(reader));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    return error.what();
  }
  return "";
}

// Observed with vLLM 0.32, Transformers 5.24 and TorchAO 0.18.
TEST(ReaderTable, SaysWhatTheReadersDo) {
  using enum ReaderResult;
  for (const char* scheme :
       {"mxfp6", "mxfp6_weight_only", "int1_weight_only_g32_asym", "int8dyn_int2_g32", "int8dyn_int3_row",
        "int8dyn_int5_g64", "int8dyn_int6_g32", "int8dyn_int7_g128", "int8dyn_int8_g32", "float8dyn_int4_g32",
        "float8dyn_int4_g64", "int2_weight_only_g32_asym", "int3_weight_only_asym", "int5_weight_only_g64_asym",
        "int6_weight_only_g128_asym", "int7_weight_only_g32_asym"})
    EXPECT_EQ(verdict("vllm", "compressed-tensors", scheme).result, refused) << scheme;
  for (const char* scheme :
       {"int4_weight_only_g128", "int8_weight_only", "int3_weight_only_g64", "int8dyn_int8", "int8dyn_int8_row",
        "int8dyn_int4_g32", "int8dyn_int4_row", "float8_dynamic", "float8_weight_only", "float8_static",
        "int8static_int8", "float8dyn_int4_g128", "int4_weight_only_g128_asym", "nvfp4", "mxfp4"})
    EXPECT_FALSE(verdict("vllm", "compressed-tensors", scheme).fails()) << scheme;
  const auto of_experts = [](const char* scheme) {
    return verdict("vllm", "compressed-tensors", scheme, DType::bf16, ExpertStorage::matrices).result;
  };
  for (const char* scheme :
       {"int8static_int8", "float8_weight_only", "float8_weight_only_tensor", "float8_dynamic_tensor",
        "int2_weight_only_g32", "int3_weight_only", "int5_weight_only_g64", "int6_weight_only_g32",
        "int7_weight_only_g128", "int4_weight_only_g32_asym"})
    EXPECT_EQ(of_experts(scheme), refused) << scheme;
  EXPECT_EQ(of_experts("int8dyn_int8_row"), not_tried);
  for (const char* scheme : {"int4_weight_only_g32", "int8_weight_only", "int8dyn_int8", "float8_dynamic",
                             "float8_static", "float8_dynamic_block", "nvfp4", "nvfp4_weight_only", "mxfp4"})
    EXPECT_EQ(of_experts(scheme), runs) << scheme;
  for (const char* scheme : {"int4_weight_only_g32", "int8_weight_only"})
    EXPECT_EQ(verdict("vllm", "compressed-tensors", scheme, DType::bf16, ExpertStorage::none, true).result, refused)
        << scheme;
  EXPECT_EQ(
      verdict("transformers", "compressed-tensors", "int4_weight_only_asym", DType::bf16, ExpertStorage::none, true)
          .result,
      not_tried);
  EXPECT_EQ(verdict("vllm", "sparse24", "").result, refused);
  for (const char* scheme : {"mxfp8_weight_only", "mxfp4_weight_only"})
    EXPECT_EQ(verdict("transformers", "torchao", scheme).result, cannot_run) << scheme;
  for (const char* scheme : {"mxfp8", "mxfp4", "int4_weight_only_g32_asym", "int8dyn_int4_g32"})
    EXPECT_FALSE(verdict("transformers", "torchao", scheme).fails()) << scheme;
  for (const char* scheme : {"mxfp8", "mxfp4_weight_only", "nvfp4", "nvfp4_weight_only"}) {
    EXPECT_EQ(verdict("transformers", "compressed-tensors", scheme, DType::f32).result, cannot_run) << scheme;
    EXPECT_FALSE(verdict("transformers", "compressed-tensors", scheme).fails()) << scheme;
  }
  for (const char* scheme : {"nvfp4", "nvfp4_weight_only", "mxfp8", "mxfp8_weight_only"})
    EXPECT_EQ(verdict("transformers", "compressed-tensors", scheme, DType::bf16, ExpertStorage::matrices).result, wrong)
        << scheme;
  for (const char* scheme : {"int8dyn_int8", "int8dyn_int8_row", "int8dyn_int4_g32", "int8static_int8"})
    EXPECT_EQ(verdict("transformers", "compressed-tensors", scheme, DType::bf16, ExpertStorage::matrices).result,
              refused)
        << scheme;
  for (const char* scheme : {"int4_weight_only_g32", "int8_weight_only", "float8_dynamic", "mxfp4", "mxfp6"})
    EXPECT_FALSE(verdict("transformers", "compressed-tensors", scheme, DType::bf16, ExpertStorage::matrices).fails())
        << scheme;
  EXPECT_EQ(verdict("transformers", "compressed-tensors", "int4_weight_only_g32_asym").result, refused);
  EXPECT_EQ(verdict("executorch", "hf", "", DType::bf16).result, cannot_run);
  EXPECT_EQ(verdict("executorch", "hf", "", DType::f32).result, runs);
  EXPECT_EQ(verdict("executorch", "torchao", "int8dyn_int4_g32", DType::f32).result, runs);
  EXPECT_EQ(verdict("executorch", "torchao", "int8dyn_int4_g32", DType::bf16).result, cannot_run);
}

// Observed by tests/interop/check_expert_schemes.py.
TEST(ReaderTable, FusedExpertsOfTransformersAreReadAndInterleavedOnesAreNot) {
  using enum ReaderResult;
  const auto result = [](std::string_view reader, const char* scheme, ExpertStorage storage) {
    return verdict(reader, "compressed-tensors", scheme, DType::bf16, storage).result;
  };
  for (const char* scheme : {"nvfp4", "nvfp4_weight_only", "mxfp8", "mxfp8_weight_only", "int8dyn_int8",
                             "int8dyn_int8_row", "int8dyn_int4_g32", "int4_weight_only_g32", "mxfp4", "float8_static"})
    EXPECT_EQ(result("transformers", scheme, ExpertStorage::fused), runs) << scheme;
  for (const char* scheme : {"int4_weight_only_g32", "int8_weight_only", "int8dyn_int8", "float8_dynamic", "mxfp4",
                             "mxfp6_weight_only", "nvfp4_weight_only"})
    EXPECT_EQ(result("transformers", scheme, ExpertStorage::interleaved), wrong) << scheme;
  EXPECT_THAT(std::string(verdict("transformers", "compressed-tensors", "int8_weight_only", DType::bf16,
                                  ExpertStorage::interleaved)
                              .reason),
              HasSubstr("use format mxfp4"));
  for (const ExpertStorage storage : {ExpertStorage::fused, ExpertStorage::interleaved}) {
    EXPECT_EQ(result("vllm", "int4_weight_only_g32", storage), not_tried);
    EXPECT_EQ(result("vllm", "int4_weight_only_g32_asym", storage), refused);
  }
}

TEST(ReaderTable, EveryFailureHasAReasonAndTheNearestSchemeRuns) {
  for (const FolderReader& reader : folder_readers())
    for (const ExportFormat& format : export_formats()) {
      if (!reader.reads(format)) continue;
      for (const Scheme& scheme : scheme_table()) {
        if (!format.problem(scheme).empty()) continue;
        const ExportedWeights weights{&scheme, DType::bf16};
        const ReaderVerdict found = reader_verdict(reader, format, weights);
        if (!found.fails()) continue;
        EXPECT_FALSE(found.reason.empty()) << reader.name << " " << scheme.name;
        const Scheme* nearest = nearest_runnable(reader, format, weights);
        if (nearest == nullptr) continue;
        EXPECT_EQ(format.problem(*nearest), "");
        EXPECT_EQ(reader_verdict(reader, format, {nearest, DType::bf16}).result, ReaderResult::runs);
      }
    }
}

TEST(ReaderTable, TheNearestSchemeKeepsBitsAndInputs) {
  const auto nearest = [](std::string_view reader, std::string_view format, std::string_view scheme) {
    const Scheme* found = nearest_runnable(folder_readers().require(reader), export_formats().require(format),
                                           {&require_scheme(scheme, "scheme")});
    return found == nullptr ? std::string() : found->name;
  };
  EXPECT_EQ(nearest("transformers", "torchao", "mxfp8_weight_only"), "float8_weight_only");
  EXPECT_EQ(nearest("vllm", "compressed-tensors", "int8dyn_int3_g32"), "int8dyn_int4_g32");
  EXPECT_EQ(nearest("vllm", "compressed-tensors", "float8dyn_int4_g32"), "float8dyn_int4_g128");
  EXPECT_EQ(nearest("vllm", "compressed-tensors", "int8dyn_int8_g32"), "int8dyn_int8");
  EXPECT_EQ(nearest("vllm", "compressed-tensors", "int1_weight_only_g64_asym"), "int2_weight_only_g64");
  EXPECT_EQ(nearest("vllm", "compressed-tensors", "int3_weight_only_g32_asym"), "int3_weight_only_g32");
}

TEST(ReaderTable, RefusesWhatTheNamedReaderOrAllOfThemCannotRun) {
  EXPECT_THAT(refused_readers("torchao", "mxfp8_weight_only"), HasSubstr("cannot run it"));
  EXPECT_THAT(refused_readers("compressed-tensors", "mxfp6", "vllm"), HasSubstr("the nearest scheme that it runs is"));
  EXPECT_EQ(refused_readers("compressed-tensors", "mxfp6"), "") << "Transformers runs it";
  EXPECT_EQ(refused_readers("torchao", "int4_weight_only_g32"), "") << "ExecuTorch was not named";
  EXPECT_THAT(refused_readers("torchao", "int8dyn_int4_g32", "executorch"), HasSubstr("write f32"));
  EXPECT_EQ(refused_readers("torchao", "int8dyn_int4_g32", "executorch", DType::f32), "");
  EXPECT_THAT(refused_readers("gguf", "q8_0", "vllm"), HasSubstr("vLLM does not read format gguf"));
  const auto warnings =
      check_readers(export_formats().require("compressed-tensors"), {&require_scheme("mxfp6", "scheme")}, nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings.front(), HasSubstr("scheme mxfp6 in format compressed-tensors: vLLM 0.32 does not load it"));
}

// Under the scheme of linear layers too, which it runs.
TEST(ReaderTable, QuantizedEmbeddingsAreRefusedForVllm) {
  const ExportFormat& format = export_formats().require("compressed-tensors");
  const QuantizationRules rules{.scheme = find_scheme("int8_weight_only"),
                                .embeddings = find_scheme("int8_weight_only")};
  const auto check = [&](std::string_view reader) {
    return check_readers(format, &rules, DType::bf16, {}, reader.empty() ? nullptr : &folder_readers().require(reader));
  };
  try {
    (void)check("vllm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("scheme int8_weight_only of embeddings in format compressed-tensors: vLLM"));
  }
  EXPECT_EQ(check("").size(), 1u) << "a warning";
  EXPECT_EQ(check("transformers").size(), 0u);
}

class FusedLayers : public ::testing::Test {
 protected:
  static std::vector<std::string> check(std::string_view type, std::string_view format, std::string_view exclude,
                                        std::string_view reader) {
    Json json = Json::parse(R"({"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "eos_token_id": 2})");
    json.set("model_type", Json(type));
    if (type == "mixtral") {
      json.set("num_local_experts", 3);
      json.set("num_experts_per_tok", 2);
    }
    nn::CausalLm model(nn::parse_model_config(json, "config.json"), {.dtype = DType::bf16, .trainable = false});
    QuantizationRules rules{.scheme = find_scheme("int4_weight_only_g32")};
    if (!exclude.empty()) rules.exclude.emplace_back(exclude);
    return check_fused_layers(export_formats().require(format), model_tensors(model, DType::bf16), rules,
                              reader.empty() ? nullptr : &folder_readers().require(reader));
  }
  static std::string refusal(std::string_view type, std::string_view exclude) {
    try {
      (void)check(type, "compressed-tensors", exclude, "vllm");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "";
  }
};

TEST_F(FusedLayers, PartsUnderDifferentSchemesAreRefusedByName) {
  EXPECT_THAT(refusal("llama", "*.k_proj"),
              HasSubstr("model.layers.0.self_attn.q_proj has scheme int4_weight_only_g32, "
                        "model.layers.0.self_attn.k_proj no scheme: vLLM 0.32 runs them as one layer"));
  EXPECT_THAT(refusal("llama", "*.up_proj"), HasSubstr("model.layers.0.mlp.up_proj no scheme"));
  EXPECT_EQ(refusal("llama", "*.self_attn.*"), "");
  EXPECT_EQ(refusal("llama", "*.o_proj"), "");
  EXPECT_EQ(refusal("llama", "*.down_proj"), "");
  EXPECT_EQ(refusal("llama", ""), "");
  for (const char* part : {"*.experts.1.*", "*.w3", "*.w2"})
    EXPECT_THAT(refusal("mixtral", part), HasSubstr("no scheme"));
  EXPECT_EQ(refusal("mixtral", "*.experts.*"), "");
}

TEST_F(FusedLayers, OtherReadersAreNotAskedAndNoneGivesAWarning) {
  EXPECT_EQ(check("llama", "compressed-tensors", "*.k_proj", "transformers").size(), 0u);
  EXPECT_EQ(check("llama", "compressed-tensors", "*.k_proj", "").size(), 1u);
  EXPECT_EQ(check("llama", "torchao", "*.k_proj", "").size(), 0u);
}

TEST(ReaderTable, TheReferenceNamesFamiliesAndReasons) {
  const std::string text = reader_reference();
  for (const ExportFormat& format : export_formats())
    EXPECT_THAT(text, HasSubstr("| " + std::string(format.name) + " |"));
  for (const char* names :
       {"`int<2-8>_weight_only[_g32\\|_g64\\|_g128]`", "`float8dyn_int4<_g32\\|_g64>`",
        "`mxfp8_weight_only`, `mxfp4_weight_only` | loads, cannot run: TorchAO", "refused: vLLM does not support MXFP6",
        "`q8_0`, `q4_0`, `q4_1`, `q5_0`, `q5_1`, `q2_k`, `q3_k`, `q4_k`, `q5_k`, `q6_k`, `iq4_nl`, `iq4_xs`, `iq3_s`, "
        "`iq3_xxs`, `iq2_s`, `iq2_xs`, `iq2_xxs`, `tq1_0`, `tq2_0`, `mxfp4_gguf`, `q5_k_m`"})
    EXPECT_THAT(text, HasSubstr(names));
}

}  // namespace
}  // namespace quench
