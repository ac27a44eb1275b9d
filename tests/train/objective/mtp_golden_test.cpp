// Multi-token prediction of DeepSeek-V3 against Transformers' decoder layer in a loop of its own
// (tests/reference/make_mtp.py): logits, the losses of both terms, every gradient and the names of checkpoints.

#include <array>
#include <numeric>

#include "core/safetensors/safetensors_folder.h"
#include "nn/experts/expert_load.h"
#include "tests/train/objective/mtp_golden.h"

namespace quench {
namespace {

using testing::MtpGolden;

TEST(MtpGoldenModel, LogitsOfEveryDepth) {
  const MtpGolden golden;
  EXPECT_LT(golden.logits_error(), 1e-5) << "the main model";
  golden.expect_depth_logits(1e-5);
}

TEST(MtpGoldenModel, LossesAndEveryGradient) {
  MtpGolden().expect_losses_and_gradients(2e-6, 1e-4);
}

// Every tensor of the checkpoint, copies of embedding and head too.
TEST(MtpGoldenModel, TheFolderIsWrittenAsItWasRead) {
  MtpGolden golden;
  const testing::TempDir temp;
  save_model_folder(golden.model, {temp / "copy"}, {.dtype = DType::f32, .small_files = {.model = golden.folder}});
  const SafetensorsReader source(golden.folder / "model.safetensors");
  const SafetensorsFolder copy(temp / "copy");
  ASSERT_EQ(copy.names().size(), source.header().entries.size());
  for (const SafetensorsEntry& entry : source.header().entries) {
    std::vector<std::byte> left(entry.nbytes()), right(entry.nbytes());
    source.read(entry, left);
    copy.at(entry.name).read(right);
    EXPECT_EQ(left, right) << entry.name;
  }
  EXPECT_EQ(read_model_config(temp / "copy").mtp.declared, 2);
  // A model without these layers writes and declares none.
  testing::GoldenModel main((testing::reference_dir() / "models/deepseek_v3_mtp").string(), Device{});
  save_model_folder(main.model, {temp / "main"}, {.dtype = DType::f32, .small_files = {.model = golden.folder}});
  for (const std::string& name : SafetensorsFolder(temp / "main").names())
    EXPECT_FALSE(name.starts_with("model.layers.3.")) << name;
  EXPECT_EQ(read_model_config(temp / "main").mtp.declared, 0);
  EXPECT_LT(main.logits_error(), 1e-5);
}

Batch two_documents() {
  Batch batch;
  batch.input_ids = Tensor::from_values<std::int32_t>({1, 7}, std::array{10, 11, 12, 20, 21, 22, 0});
  batch.labels = Tensor::from_values<std::int32_t>({1, 7}, std::array{11, 12, kIgnoreLabel, 21, 22, 23, kIgnoreLabel});
  batch.sequences = {{0, 3, 0, 3}, {3, 3, 3, 3}};
  return batch;
}

TEST(MtpRows, ATargetBeyondTheDocumentIsNone) {
  const auto values = [](const Tensor& t) {
    return std::vector<std::int32_t>(t.data<std::int32_t>(), t.data<std::int32_t>() + t.numel());
  };
  constexpr std::int32_t kNone = kIgnoreLabel;
  const Batch batch = two_documents();
  const MtpRows first = mtp_rows(batch, 1), second = mtp_rows(batch, 2), fourth = mtp_rows(batch, 4);
  EXPECT_EQ(values(first.ids), (std::vector<std::int32_t>{11, 12, 12, 21, 22, 22, 0}));
  EXPECT_EQ(values(first.labels), (std::vector<std::int32_t>{12, kNone, kNone, 22, 23, kNone, kNone}));
  EXPECT_EQ(values(first.rows), (std::vector<std::int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(first.targets, 3);
  EXPECT_EQ(values(second.labels), (std::vector<std::int32_t>{kNone, kNone, kNone, 23, kNone, kNone, kNone}));
  EXPECT_EQ(second.targets, 1);
  EXPECT_EQ(fourth.targets, 0);
}

// Rows whose token at their depth is beyond the document are not counted, and no other row is left out.
TEST(MtpRows, TheLoadOfExpertsIsThatOfRowsWithAToken) {
  MtpGolden golden;
  const nn::ModelConfig& config = golden.model.config();
  const Batch batch = two_documents();
  const Tensor ids = batch.input_ids.view({7}), labels = batch.labels.view({7});
  nn::ExpertLoad load(config.all_layers(), config.experts.count, Device{});
  ObjectiveInput in{
      .batch = batch, .ids = ids, .labels = labels, .context = golden.model.make_context(batch.sequences, 7)};
  const auto pairs = [&](std::int64_t layer) {
    const Tensor counts = load.counts(layer);
    const float* all = counts.data<float>();
    return std::accumulate(all, all + counts.numel(), 0.0);
  };
  for (const bool terms : {false, true}) {
    load.reset();
    in.context.expert_load = &load;
    if (terms) in.context.router_terms = {.balance = 0.01f, .z = 0.01f};
    const autograd::NoGrad no_grad;
    (void)golden.objective.loss(in, 0.5f, {}, {});
    const auto k = static_cast<double>(config.experts.per_token);
    EXPECT_EQ(pairs(config.num_hidden_layers - 1), 7 * k);
    EXPECT_EQ(pairs(config.num_hidden_layers), 4 * k);
    EXPECT_EQ(pairs(config.num_hidden_layers + 1), 2 * k);
    for (const nn::ExpertLoad::Layer& layer : load.read()) EXPECT_EQ(layer.balance > 0, terms) << layer.layer;
  }
}

// The loss of a document does not depend on the tokens of another.
TEST(MtpRows, DocumentsOfARowAreIndependent) {
  MtpGolden golden;
  const auto gradient_of = [&](std::int32_t token) {
    Batch batch = two_documents();
    batch.input_ids.data<std::int32_t>()[5] = token;
    batch.labels.data<std::int32_t>()[4] = token;
    for (const std::int64_t row : {3, 4, 5}) batch.labels.data<std::int32_t>()[row] = kIgnoreLabel;
    const Tensor ids = batch.input_ids.view({7}), labels = batch.labels.view({7});
    const ObjectiveInput in{
        .batch = batch, .ids = ids, .labels = labels, .context = golden.model.make_context(batch.sequences, 7)};
    const Tensor metrics = Tensor::empty({4}, DType::f32);
    const autograd::NoGrad no_grad;
    (void)golden.objective.loss(in, 0.5f, {}, metrics);
    return std::vector<float>(metrics.data<float>(), metrics.data<float>() + 4);
  };
  EXPECT_EQ(gradient_of(22), gradient_of(90));
}

}  // namespace
}  // namespace quench
