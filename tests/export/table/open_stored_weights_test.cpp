// Folders whose quantization no reader knows.

#include "export/table/open_stored_weights.h"

#include <gmock/gmock.h>

#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Message of opening a folder with this config.json.
std::string refusal(const std::string& config) {
  const testing::TempDir folder;
  testing::write_file(folder / "config.json", config);
  try {
    (void)open_stored_weights(folder.path(), Json::parse(config));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return "";
}

TEST(OpenStoredWeights, MlxIsNamedWithFileAndRemedy) {
  for (const char* config : {R"({"quantization": {"group_size": 64, "bits": 4},
                                 "quantization_config": {"group_size": 64, "bits": 4}})",
                             R"({"quantization": {"group_size": 64, "bits": 4, "mode": "affine"}})"}) {
    SCOPED_TRACE(config);
    EXPECT_THAT(refusal(config),
                AllOf(HasSubstr("config.json: weights quantized by MLX"), HasSubstr("not supported"),
                      HasSubstr("use the folder that they were made from"), HasSubstr("mlx_lm.convert --dequantize")));
  }
}

TEST(OpenStoredWeights, UnknownMethodIsNamedWithFileAndKnownOnes) {
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "aqlm", "bits": 4}})"),
              AllOf(HasSubstr("config.json: weights quantized by 'aqlm' are not supported; known: compressed-tensors"),
                    Not(HasSubstr("MLX"))));
  EXPECT_THAT(refusal(R"({"quantization": {"bits": 4}, "quantization_config": {"quant_method": "aqlm"}})"),
              HasSubstr("'aqlm'"));
}

TEST(OpenStoredWeights, MissingMethodIsNamedWithFileAndKnownOnes) {
  for (const char* config : {R"({"quantization_config": {"bits": 4}})", R"({"quantization_config": "gptq"})"})
    EXPECT_THAT(refusal(config),
                HasSubstr("config.json: quantization_config names no quant_method; known: compressed-tensors"));
}

}  // namespace
}  // namespace quench
