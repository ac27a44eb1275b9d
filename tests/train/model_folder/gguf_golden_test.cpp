// GGUF files of llama.cpp's Python package against Transformers on the same files
// (tests/reference/make_gguf_models.py): block types that are only read, and a model in parts.

#include <gmock/gmock.h>

#include <map>

#include "core/ops/packed_linear.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"
#include "tests/train/model_folder/golden_model.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::GoldenModel;
using ::testing::HasSubstr;
using testing::TempDir;

std::string error_of_opening(const fs::path& model) {
  try {
    (void)read_model_config(model);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

class GgufGolden : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string folder() { return (testing::reference_dir() / "models" / GetParam()).string(); }
};

TEST_P(GgufGolden, LogitsAndGreedyTextAreThoseOfTransformers) {
  GoldenModel golden(folder(), Device{});
  EXPECT_LT(golden.logits_error(), 1e-5);
  golden.expect_greedy_tokens();
  load_weights(golden.model, folder(), true);
  EXPECT_LT(golden.logits_error(), 1e-5) << "packed";
  golden.expect_greedy_tokens();
}

INSTANTIATE_TEST_SUITE_P(Models, GgufGolden, ::testing::Values("gguf_types", "gguf_split"),
                         [](const auto& model) { return std::string(model.param); });

TEST(GgufTypes, AreABaseOfAdaptersInTheirOwnCodes) {
  const GoldenModel dense((testing::reference_dir() / "models/gguf_types").string(), Device{});
  std::map<std::string, Tensor> values;
  for (const nn::Parameter* p : dense.model.parameters()) values.emplace(p->name, p->variable.value());
  nn::CausalLm model(dense.model.config(), {.dtype = DType::f32});
  std::size_t kept = 0;
  load_base(model, dense.folder, [&](nn::Parameter& weight, const PackedMatrix& codes) {
    const Tensor unpacked = Tensor::empty(weight.global_shape, DType::f32);
    unpack({codes, unpacked});
    EXPECT_TRUE(testing::equal_bytes(unpacked, values.at(weight.name))) << weight.name;
    ++kept;
  });
  EXPECT_EQ(kept, 6u) << "matrices whose parts have one type";
}

class GgufParts : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int part = 1; part <= 3; ++part)
      fs::copy_file(testing::reference_dir() / "models/gguf_split" / name(part), folder_ / name(part));
  }
  static std::string name(int part) { return fmt::format("model-0000{}-of-00003.gguf", part); }
  // Value of a tensor that the last part holds.
  [[nodiscard]] static float last_norm(const fs::path& model) {
    nn::CausalLm loaded(read_model_config(model), {.dtype = DType::f32});
    load_weights(loaded, model);
    return loaded.parameters().back()->variable.value().data<float>()[0];
  }

  TempDir folder_;
};

TEST_F(GgufParts, AreOneModelByTheFolderOrTheFirstPart) {
  EXPECT_EQ(last_norm(folder_.path()), last_norm(folder_ / name(1)));
  EXPECT_THAT(error_of_opening(folder_ / name(2)),
              AllOf(HasSubstr("part 2 of 3"), HasSubstr("name part 1, "), HasSubstr("model-00001-of-00003.gguf")));
}

TEST_F(GgufParts, MissingOnesAreNamed) {
  fs::remove(folder_ / name(3));
  for (const fs::path& model : {folder_.path(), folder_ / name(1)})
    EXPECT_THAT(error_of_opening(model),
                AllOf(HasSubstr("has 3 parts"), HasSubstr("lacks model-00003-of-00003.gguf;")));
  fs::remove(folder_ / name(1));
  EXPECT_THAT(error_of_opening(folder_.path()),
              AllOf(HasSubstr("part 2 of 3"), HasSubstr("part 1, model-00001-of-00003.gguf, is missing")));
  fs::rename(folder_ / name(2), folder_ / "renamed.gguf");
  EXPECT_THAT(error_of_opening(folder_.path()),
              AllOf(HasSubstr("renamed.gguf: it is part 2 of 3"), HasSubstr("-00002-of-00003.gguf")));
}

TEST_F(GgufParts, PartsOfAnotherModelAreNamed) {
  fs::copy_file(folder_ / name(2), folder_ / name(3), fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of_opening(folder_.path()),
              AllOf(HasSubstr("model-00003-of-00003.gguf is part 2 of 3 of another model than model-00001-of-00003")));
  fs::copy_file(testing::reference_dir() / "models/gguf_types/model.gguf", folder_ / name(3),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of_opening(folder_.path()), HasSubstr("model-00003-of-00003.gguf is part 1 of 1 of another model"));
  fs::copy_file(folder_ / name(1), folder_ / "other-00001-of-00003.gguf");
  EXPECT_THAT(error_of_opening(folder_.path()), HasSubstr("several GGUF files, model-00001-of-00003.gguf and other-"));
}

TEST_F(GgufParts, AProjectorNextToTheModelIsPassedOverWithANotice) {
  testing::write_file(folder_ / "mmproj-model-f16.gguf", "of no interest");
  testing::write_file(folder_ / "z-mmproj.gguf", "of no interest");
  const testing::CapturedLog log;
  EXPECT_NE(last_norm(folder_.path()), 0.0f);
  EXPECT_NE(last_norm(folder_.path()), 0.0f);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("passed over: mmproj-model-f16.gguf, z-mmproj.gguf")));
  EXPECT_EQ(log.text().find("passed over"), log.text().rfind("passed over"));
}

}  // namespace
}  // namespace quench
