// PEFT adapters over a resized vocabulary (tests/reference/make_saved_modules.py): rows come from the folder.

#include "tests/train/model_folder/peft_golden.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::PeftGolden;
using testing::read_f32;
using testing::saved_folder;

constexpr std::int64_t kNew = 3;

struct GrownCase {
  const char* folder;
  const char* base;
  std::size_t gradients;
};

class GrownGolden : public PeftGolden, public ::testing::WithParamInterface<GrownCase> {
 protected:
  GrownGolden() : PeftGolden(saved_folder(GetParam().folder), GetParam().base, kNew) {}
};

TEST_P(GrownGolden, Logits) {
  expect_logits(saved_folder(GetParam().folder));
}

TEST_P(GrownGolden, LossAndGradients) {
  expect_gradients(saved_folder(GetParam().folder), GetParam().gradients);
}

TEST_P(GrownGolden, WhatIsWrittenComesBack) {
  const fs::path folder = saved_folder(GetParam().folder);
  EXPECT_EQ(adapter_vocabulary(folder), 163);
  const testing::TempDir temp;
  const auto adapter = load_adapter(model_, folder, {});
  save_adapter_folder(model_, *adapter, {temp / "copy"}, {.dtype = DType::f32, .base = "llama", .vocabulary = true});
  EXPECT_EQ(adapter_vocabulary(temp / "copy"), 163);
  const SafetensorsReader ours(temp / "copy" / "adapter_model.safetensors"),
      theirs(folder / "adapter_model.safetensors");
  for (const SafetensorsEntry& entry : ours.header().entries)
    EXPECT_EQ(read_f32(ours, entry.name), read_f32(theirs, entry.name)) << entry.name;
  nn::CausalLm again(model_.config(), {});
  load_weights(again, testing::golden_dir() / "models" / GetParam().base, false, {}, NewRows());
  const auto read = load_adapter(again, temp / "copy", {});
  ASSERT_EQ(read->tensors().size(), adapter->tensors().size());
  for (std::size_t i = 0; i < read->tensors().size(); ++i) {
    const Tensor a = read->tensors()[i].value, b = adapter->tensors()[i].value;
    EXPECT_TRUE(std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>())) << read->tensors()[i].layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, GrownGolden,
                         ::testing::Values(GrownCase{"llama_grown", "llama", 8},
                                           GrownCase{"llama_grown_saved", "llama", 10},
                                           GrownCase{"llama_grown_tokens", "llama", 10},
                                           GrownCase{"llama_grown_tied", "llama31_tied", 9}),
                         [](const auto& grown) { return std::string(grown.param.folder); });

class MeanRows : public PeftGolden {
 protected:
  MeanRows() : PeftGolden(saved_folder("llama_grown"), "llama", kNew) {}
};

// Transformers samples around the mean with a covariance of 1e-9.
TEST_F(MeanRows, AreThoseOfTransformersUpToItsNoise) {
  const SafetensorsReader theirs(saved_folder("llama_grown") / "adapter_model.safetensors");
  for (const nn::Parameter* parameter : vocabulary_parameters(model_)) {
    const std::vector<float> expected = read_f32(theirs, "base_model.model." + parameter->name);
    const float* ours = parameter->variable.value().data<float>();
    constexpr std::int64_t kOld = 160, kWidth = 32;
    for (std::int64_t i = 0; i < kOld * kWidth; ++i) ASSERT_EQ(ours[i], expected[static_cast<std::size_t>(i)]);
    for (std::int64_t c = 0; c < kWidth; ++c) {
      double sum = 0, squares = 0;
      for (std::int64_t row = 0; row < kOld; ++row) sum += static_cast<double>(ours[row * kWidth + c]);
      const double mean = sum / kOld;
      for (std::int64_t row = 0; row < kOld; ++row) squares += std::pow(ours[row * kWidth + c] - mean, 2);
      const double noise = 3.2e-5 * std::sqrt(squares / kOld);
      for (std::int64_t row = kOld; row < kOld + kNew; ++row) {
        EXPECT_FLOAT_EQ(ours[row * kWidth + c], static_cast<float>(mean));
        EXPECT_NEAR(expected[static_cast<std::size_t>(row * kWidth + c)], mean, 6 * noise);
      }
    }
  }
}

TEST_F(MeanRows, NormalRowsDependOnTheSeed) {
  const fs::path folder = testing::golden_dir() / "models" / "llama";
  const auto last_row = [&](std::uint64_t seed) {
    nn::CausalLm model(model_.config(), {});
    load_weights(model, folder, false, {}, NewRows{.normal = true, .seed = seed});
    const float* row = vocabulary_parameters(model).front()->variable.value().data<float>() + 162 * 32;
    return std::vector<float>(row, row + 32);
  };
  EXPECT_EQ(last_row(1), last_row(1));
  EXPECT_NE(last_row(1), last_row(2));
}

std::string fault_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST_F(MeanRows, AnotherVocabularyIsNamed) {
  const fs::path base = testing::golden_dir() / "models" / "llama";
  EXPECT_THAT(fault_of([&] { load_weights(model_, base); }),
              HasSubstr("model.embed_tokens.weight has shape [160, 32], expected [163, 32]"));
  nn::CausalLm small(read_model_config(base), {});
  EXPECT_THAT(fault_of([&] { (void)load_adapter(small, saved_folder("llama_grown"), {}); }),
              HasSubstr("base_model.model.lm_head.weight has shape [163, 32]; expected [160, 32]"));
}

}  // namespace
}  // namespace quench
