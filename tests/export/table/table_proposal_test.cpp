// The line on a tied table that stays in high precision.

#include "export/table/table_proposal.h"

#include <gmock/gmock.h>

namespace quench {
namespace {

using ::testing::HasSubstr;

// SmolLM2-135M's table of 49,152 rows of 576.
std::string proposal(std::string_view format, const QuantizationRules& rules, bool tied = true,
                     std::uint64_t bytes = 116'000'000) {
  nn::ModelConfig model;
  model.vocab_size = 49152;
  model.hidden_size = 576;
  model.tie_word_embeddings = tied;
  return table_proposal(export_formats().require(format), rules, model, DType::bf16, bytes);
}

TEST(TableProposal, NamesTheSchemeAndWhatItSaves) {
  const QuantizationRules rules{.scheme = find_scheme("q4_0")};
  EXPECT_EQ(proposal("gguf", rules),
            "the embedding table, which is the head too, is 56.6 of 116.0 MB in bf16; --embeddings q8_0 "
            "(export.embeddings) stores it in 30.1 MB");
  EXPECT_THAT(proposal("compressed-tensors", {.scheme = find_scheme("int4_weight_only_g64")}),
              HasSubstr("; format gguf with --embeddings q8_0"))
      << "readers of this format misread a quantized table that is the head too";
}

TEST(TableProposal, IsMadeWhereItMattersAndNothingElseWasAsked) {
  const QuantizationRules rules{.scheme = find_scheme("q4_0")};
  EXPECT_EQ(proposal("gguf", rules, false), "") << "not tied";
  EXPECT_EQ(proposal("gguf", rules, true, 400'000'000), "") << "a small part of the file";
  EXPECT_EQ(proposal("gguf", {.scheme = rules.scheme, .embeddings = find_scheme("q8_0")}), "");
}

}  // namespace
}  // namespace quench
