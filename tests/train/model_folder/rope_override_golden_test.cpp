// RoPE settings of a run over a folder without any, against Hugging Face Transformers with the same settings
// (tests/reference/make_rope_overrides.py): logits of the run's model, and of its exported folder.

#include "tests/train/model_folder/golden_model.h"
#include "train/check/load.h"
#include "train/config/presets.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

class RopeOverrideGolden : public ::testing::TestWithParam<const char*> {
 protected:
  // Relative error of the last positions.
  [[nodiscard]] double logits_error(const nn::CausalLm& model) const {
    const autograd::NoGrad no_grad;
    const Shape shape = reference_.at("input_ids").shape;
    const std::int64_t length = shape[1], vocab = model.config().vocab_size;
    const std::int64_t kept = reference_.at("none").shape[1];
    const Tensor ids = Tensor::from_values<std::int32_t>({shape.numel()}, testing::read_ids(reference_, "input_ids"));
    std::vector<SequenceRange> rows;
    for (std::int64_t b = 0; b < shape[0]; ++b) rows.push_back({b * length, length, b * length, length});
    const Tensor logits = model.logits(model.hidden(ids, model.make_context(rows, shape.numel())));
    std::vector<float> found;
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      const float* last = logits.data<float>() + ((b + 1) * length - kept) * vocab;
      found.insert(found.end(), last, last + kept * vocab);
    }
    const std::vector<float> expected = testing::read_f32(reference_, GetParam());
    return testing::relative_l2(std::span<const float>(found), std::span<const float>(expected));
  }

  SafetensorsReader reference_{testing::reference_dir() / "rope_overrides.safetensors"};
};

TEST_P(RopeOverrideGolden, TheRunAndItsExportHaveTheLogitsOfTransformers) {
  const std::filesystem::path folder = testing::golden_dir() / "models/llama";
  std::vector<std::string> overrides;
  const Json reference = Json::parse_file(testing::reference_dir() / "rope_overrides.json");
  for (const auto& [key, value] : reference.at("cases").at(GetParam()).as_object())
    overrides.push_back(fmt::format("--model.{}={}", key, value.dump()));
  const RunConfig config =
      parse_run_config(fmt::format(R"({{"model": {{"path": "{}"}}, "data": {{"train": "a.bin", "seq_len": 40}},
                      "training": {{"steps": 1, "dtype": "f32"}}}})",
                                   folder.string()),
                       "run.json", overrides, {.data = false, .files = false});
  nn::CausalLm model(run_model_config(config), {});
  load_weights(model, folder);
  EXPECT_LT(logits_error(model), 1e-5);

  const testing::TempDir temp;
  save_model_folder(model, {temp / "export"}, {.dtype = DType::f32, .small_files = {.model = folder}});
  const nn::ModelConfig stored = read_model_config(temp / "export");
  EXPECT_EQ(stored.max_position_embeddings, model.config().max_position_embeddings);
  nn::CausalLm read(stored, {});
  load_weights(read, temp / "export");
  EXPECT_LT(logits_error(read), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Settings, RopeOverrideGolden,
                         ::testing::Values("yarn", "yarn_factors", "linear", "llama3", "longrope", "longrope_short",
                                           "dynamic", "theta", "theta_and_yarn"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace quench
