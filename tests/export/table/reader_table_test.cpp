// The table of readers against the schemes, formats and facts that it is made of.

#include "export/table/reader_table.h"

#include <gmock/gmock.h>

#include "tests/export/export_testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

ReaderVerdict verdict(std::string_view reader, std::string_view format, std::string_view scheme,
                      DType dtype = DType::bf16, bool experts = false) {
  return reader_verdict(folder_readers().require(reader), export_formats().require(format),
                        {scheme.empty() ? nullptr : &require_scheme(scheme, "scheme"), dtype, experts});
}

std::string refused_readers(std::string_view format, std::string_view scheme, std::string_view reader = {},
                            DType dtype = DType::bf16) {
  try {
    (void)check_readers(export_formats().require(format), {&require_scheme(scheme, "scheme"), dtype, false},
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
  for (const char* scheme : {"mxfp6", "mxfp6_weight_only", "int1_weight_only_g32_asym", "int8dyn_int2_g32",
                             "int8dyn_int3_row", "int8dyn_int5_g64", "int8dyn_int6_g32", "int8dyn_int7_g128",
                             "int8dyn_int8_g32", "float8dyn_int4_g32", "float8dyn_int4_g64"})
    EXPECT_EQ(verdict("vllm", "compressed-tensors", scheme).result, refused) << scheme;
  for (const char* scheme :
       {"int4_weight_only_g128", "int8_weight_only", "int3_weight_only_g64", "int8dyn_int8", "int8dyn_int8_row",
        "int8dyn_int4_g32", "int8dyn_int4_row", "float8_dynamic", "float8_weight_only", "float8_static",
        "int8static_int8", "float8dyn_int4_g128", "int4_weight_only_g128_asym", "nvfp4", "mxfp4"})
    EXPECT_FALSE(verdict("vllm", "compressed-tensors", scheme).fails()) << scheme;
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
    EXPECT_EQ(verdict("transformers", "compressed-tensors", scheme, DType::bf16, true).result, wrong) << scheme;
  for (const char* scheme : {"int8dyn_int8", "int8dyn_int8_row", "int8dyn_int4_g32", "int8static_int8"})
    EXPECT_EQ(verdict("transformers", "compressed-tensors", scheme, DType::bf16, true).result, refused) << scheme;
  for (const char* scheme : {"int4_weight_only_g32", "int8_weight_only", "float8_dynamic", "mxfp4", "mxfp6"})
    EXPECT_FALSE(verdict("transformers", "compressed-tensors", scheme, DType::bf16, true).fails()) << scheme;
  EXPECT_EQ(verdict("transformers", "compressed-tensors", "int4_weight_only_g32_asym").result, refused);
  EXPECT_EQ(verdict("executorch", "hf", "", DType::bf16).result, cannot_run);
  EXPECT_EQ(verdict("executorch", "hf", "", DType::f32).result, runs);
  EXPECT_EQ(verdict("executorch", "torchao", "int8dyn_int4_g32", DType::f32).result, runs);
  EXPECT_EQ(verdict("executorch", "torchao", "int8dyn_int4_g32", DType::bf16).result, cannot_run);
}

TEST(ReaderTable, EveryFailureHasAReasonAndTheNearestSchemeRuns) {
  for (const FolderReader& reader : folder_readers())
    for (const ExportFormat& format : export_formats()) {
      if (!reader.reads(format)) continue;
      for (const Scheme& scheme : scheme_table()) {
        if (!format.problem(scheme).empty()) continue;
        const ExportedWeights weights{&scheme, DType::bf16, false};
        const ReaderVerdict found = reader_verdict(reader, format, weights);
        if (!found.fails()) continue;
        EXPECT_FALSE(found.reason.empty()) << reader.name << " " << scheme.name;
        const Scheme* nearest = nearest_runnable(reader, format, weights);
        if (nearest == nullptr) continue;
        EXPECT_EQ(format.problem(*nearest), "");
        EXPECT_EQ(reader_verdict(reader, format, {nearest, DType::bf16, false}).result, ReaderResult::runs);
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
  EXPECT_EQ(nearest("vllm", "compressed-tensors", "int1_weight_only_g64_asym"), "int2_weight_only_g64_asym");
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

TEST(ReaderTable, TheReferenceNamesFamiliesAndReasons) {
  const std::string text = reader_reference();
  for (const ExportFormat& format : export_formats())
    EXPECT_THAT(text, HasSubstr("| " + std::string(format.name) + " |"));
  for (const char* names : {"`int<2-8>_weight_only[_g32\\|_g64\\|_g128]`", "`float8dyn_int4<_g32\\|_g64>`",
                            "`mxfp8_weight_only`, `mxfp4_weight_only` | loads, cannot run: TorchAO",
                            "refused: vLLM does not support MXFP6", "`q8_0`, `q4_0`, `q4_k`, `q6_k`, `mxfp4_gguf`"})
    EXPECT_THAT(text, HasSubstr(names));
}

}  // namespace
}  // namespace quench
