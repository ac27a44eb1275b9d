// `quench quantize` into mixes of GGUF types, with and without an importance matrix.

#include <gmock/gmock.h>

#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/types.h"
#include "export/imatrix/imatrix.h"
#include "tests/apps/run_project.h"

namespace quench::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class GgufMixVerb : public ::testing::Test {
 protected:
  GgufMixVerb() { write_id_records(folder_ / "ids.jsonl"); }

  Outcome quantize(const std::string& scheme, const std::string& output, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"quantize", "--model", model_.string(), "--scheme", scheme,
                                       "--format", "gguf",    "--output",      output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }
  [[nodiscard]] std::map<std::string, std::string> types(const std::string& output) const {
    std::map<std::string, std::string> found;
    for (const GgufEntry& entry : read_gguf_head(folder_ / output).tensors)
      found[entry.name] = gguf_type_name(entry.type);
    return found;
  }
  [[nodiscard]] Json metadata(const std::string& output, const std::string& key) const {
    return read_gguf_head(folder_ / output).metadata.at(key);
  }
  const std::vector<std::string> calibration_{"--calibration",         "ids.jsonl", "--calibration-samples", "8",
                                              "--calibration-seq-len", "32"};

  [[nodiscard]] std::vector<std::string> with_calibration(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), calibration_.begin(), calibration_.end());
    return more;
  }

  TempDir folder_;
  fs::path model_ = golden_dir() / "models/llama";
};

TEST_F(GgufMixVerb, WritesTheTypesAndNumbersOfLlamaCpp) {
  const Outcome made = quantize("q4_k_m", "m.gguf");
  ASSERT_EQ(made.status, 0) << made.errors;
  EXPECT_EQ(metadata("m.gguf", "general.file_type"), Json(15));
  EXPECT_EQ(metadata("m.gguf", "general.quantization_version"), Json(2));
  const auto found = types("m.gguf");
  // Widths of 32 and 96: the types that take the place of those of 256.
  EXPECT_EQ(found.at("blk.0.attn_q.weight"), "Q5_0");
  EXPECT_EQ(found.at("token_embd.weight"), "Q5_0");
  EXPECT_EQ(found.at("output.weight"), "Q8_0");
  EXPECT_EQ(found.at("output_norm.weight"), "F32");
  for (const auto& [name, type] : found) EXPECT_THAT(type, Not(::testing::AnyOf("F16", "BF16"))) << name;
  EXPECT_THAT(made.errors + made.output, HasSubstr("have widths that no blocks of q4_k divide: q5_0"));
}

// One tensor for table and head, in the head's type.
TEST_F(GgufMixVerb, TiedTableIsStoredOnceAndQuantized) {
  model_ = golden_dir() / "models/llama31_tied";
  ASSERT_EQ(quantize("q4_0", "m").status, 0);
  const auto found = types("m/model.gguf");
  EXPECT_EQ(found.at("token_embd.weight"), "Q8_0");
  EXPECT_FALSE(found.contains("output.weight"));
  const Outcome plain = run_program(folder_.path(), {"export", "--model", "m", "--output", "plain"});
  EXPECT_EQ(plain.status, 0) << plain.errors;
}

TEST_F(GgufMixVerb, FilesOfEveryMixAreRead) {
  for (const char* scheme :
       {"q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_k", "q4_0", "q3_k_m", "q2_k", "iq4_xs", "iq4_nl"}) {
    SCOPED_TRACE(scheme);
    ASSERT_EQ(quantize(scheme, "m.gguf").status, 0);
    const Outcome seen = run_program(folder_.path(), {"export", "--model", "m.gguf", "--output", "plain"});
    EXPECT_EQ(seen.status, 0) << seen.errors;
  }
}

TEST_F(GgufMixVerb, LayersAndTableMayBeOthersByName) {
  ASSERT_EQ(quantize("q4_k_m", "m.gguf",
                     {"--rule", "*.down_proj=q8_0", "--rule", "*.q_proj=none", "--embeddings", "q4_0", "--exclude",
                      "*.o_proj"})
                .status,
            0);
  const auto found = types("m.gguf");
  EXPECT_EQ(found.at("blk.0.ffn_down.weight"), "Q8_0");
  EXPECT_EQ(found.at("token_embd.weight"), "Q4_0");
  for (const char* kept : {"blk.0.attn_q.weight", "blk.0.attn_output.weight"})
    EXPECT_THAT(found.at(kept), ::testing::AnyOf("BF16", "F32", "F16")) << kept;
  EXPECT_THAT(quantize("q4_k_m", "n.gguf", {"--rule", "*.down_proj=q5_k_m"}).errors,
              HasSubstr("'q5_k_m' is a mix of types for a whole file"));
}

TEST_F(GgufMixVerb, MatrixIsComputedSavedAndReadBackToTheSameFile) {
  const Outcome made = quantize("q4_0", "a.gguf", with_calibration({"--save-imatrix", "imatrix.gguf"}));
  ASSERT_EQ(made.status, 0) << made.errors;
  const Imatrix matrix = read_imatrix(folder_ / "imatrix.gguf");
  EXPECT_EQ(matrix.chunks, 8);
  EXPECT_EQ(matrix.chunk_size, 32);
  EXPECT_TRUE(matrix.entries.contains("blk.0.attn_q.weight"));
  ASSERT_EQ(quantize("q4_0", "b.gguf", {"--imatrix", "imatrix.gguf"}).status, 0);
  EXPECT_TRUE(read_file(folder_ / "a.gguf") == read_file(folder_ / "b.gguf"));
  ASSERT_EQ(quantize("q4_0", "folder", {"--imatrix", "imatrix.gguf"}).status, 0);
  EXPECT_THAT(read_file(folder_ / "folder/README.md"), HasSubstr("| Importance matrix | imatrix.gguf |"));
  ASSERT_EQ(quantize("q4_0", "c.gguf").status, 0);
  EXPECT_FALSE(read_file(folder_ / "a.gguf") == read_file(folder_ / "c.gguf")) << "the matrix has an effect";
}

TEST_F(GgufMixVerb, BadMatricesLeaveNothingBehind) {
  write_file(folder_ / "text.dat", "no matrix");
  write_file(folder_ / "notes.txt", "notes");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& scheme = "q4_0") {
    const Outcome outcome = quantize(scheme, "m.gguf", more);
    EXPECT_NE(outcome.status, 0);
    EXPECT_FALSE(fs::exists(folder_ / "m.gguf"));
    return outcome.errors;
  };
  EXPECT_THAT(refused({"--imatrix", "none.gguf"}), HasSubstr("none.gguf does not exist"));
  EXPECT_THAT(refused({"--imatrix", "text.dat"}), HasSubstr("text.dat: not a valid imatrix file"));
  EXPECT_THAT(refused(with_calibration({"--imatrix", "text.dat"})), HasSubstr("name one of the two"));
  EXPECT_THAT(refused({"--save-imatrix", "i.gguf"}), HasSubstr("--save-imatrix needs --calibration"));
  EXPECT_THAT(refused(with_calibration({"--save-imatrix", "notes.txt"})), HasSubstr("notes.txt"));
  EXPECT_EQ(read_file(folder_ / "notes.txt"), "notes");
  EXPECT_THAT(run_program(folder_.path(), {"quantize", "--model", model_.string(), "--scheme", "int8_weight_only",
                                           "--output", "q", "--imatrix", "text.dat"})
                  .errors,
              HasSubstr("--imatrix has no effect on --scheme int8_weight_only"));
  ASSERT_EQ(quantize("q8_0", "base.gguf").status, 0);
  EXPECT_THAT(refused({"--imatrix", "base.gguf"}), HasSubstr("is a GGUF file, but no importance matrix"));
  write_imatrix({.entries = {{"blk.70.attn_q.weight", {.sums = {1, 1}, .counts = {1}}}}, .chunks = 1, .chunk_size = 2},
                folder_ / "other.gguf");
  EXPECT_THAT(refused({"--imatrix", "other.gguf"}), HasSubstr("is the importance matrix of another model"));
}

}  // namespace
}  // namespace quench::testing
