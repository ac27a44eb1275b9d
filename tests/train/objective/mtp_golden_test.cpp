// Multi-token prediction of DeepSeek-V3 against Transformers' decoder layer in a loop of its own
// (tests/reference/make_mtp.py): logits, the losses of both terms, every gradient and the names of checkpoints.

#include <array>

#include "core/safetensors/safetensors_folder.h"
#include "tests/train/model_folder/golden_model.h"
#include "train/objective/mtp_objective.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct MtpGolden : testing::GoldenModel {
  MtpGolden()
      : GoldenModel((testing::reference_dir() / "models/deepseek_v3_mtp").string(), Device{}, DType::f32, true),
        objective(model, static_cast<double>(testing::read_f32(reference, "weight")[0])) {
    rows.input_ids = ids.view({batch, length});
    rows.labels = labels.view({batch, length});
    for (std::int64_t b = 0; b < batch; ++b) rows.sequences.push_back({b * length, length, b * length, length});
    rows.valid_tokens = valid;
  }

  // Means over valid tokens: the loss, then reported metrics. Gradients are left in the parameters.
  std::vector<double> run(autograd::Recompute level) {
    for (nn::Parameter* p : model.parameters())
      if (p->variable.requires_grad()) p->variable.gradient()->reset();
    ObjectiveInput in{.batch = rows, .ids = ids, .labels = labels, .context = context()};
    in.context.recompute = level;
    const auto count = static_cast<std::int64_t>(objective.metric_names().size());
    const Tensor metrics = Tensor::empty({count}, DType::f32);
    autograd::Tape tape(level);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = objective.loss(in, 1.0f / static_cast<float>(valid), {.chunk_rows = 16}, metrics);
    }
    const auto value = static_cast<double>(*loss.value().data<float>());
    tape.backward(loss);
    std::vector<double> all{value};
    const float* means = metrics.data<float>();
    for (const double mean : objective.reported({means, means + count})) all.push_back(mean);
    return all;
  }

  Batch rows;
  MtpObjective objective;
};

TEST(MtpGoldenModel, LogitsOfEveryDepth) {
  const MtpGolden golden;
  EXPECT_LT(golden.logits_error(), 1e-5) << "the main model";
  const autograd::NoGrad no_grad;
  const nn::ForwardContext context = golden.context();
  std::vector<Tensor> ids;
  for (std::int64_t depth = 1; depth <= golden.model.config().mtp.layers; ++depth)
    ids.push_back(mtp_rows(golden.rows, depth).ids);
  const auto states = golden.model.mtp_hidden(golden.model.hidden(golden.ids, context), ids, context);
  const std::vector<float> expected = testing::read_f32(golden.reference, "mtp_logits");
  const std::size_t size = expected.size() / states.size();
  for (std::size_t depth = 0; depth < states.size(); ++depth) {
    const Tensor logits = golden.model.logits(states[depth]);
    ASSERT_EQ(static_cast<std::size_t>(logits.numel()), size);
    EXPECT_LT(testing::relative_l2(std::span<const float>(logits.data<float>(), size),
                                   std::span<const float>(expected).subspan(depth * size, size)),
              1e-5)
        << "depth " << depth + 1;
  }
}

TEST(MtpGoldenModel, LossesAndEveryGradient) {
  MtpGolden golden;
  const std::vector<float> of_depths = testing::read_f32(golden.reference, "mtp_losses");
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    const std::vector<double> losses = golden.run(level);
    EXPECT_NEAR(losses[0], testing::read_f32(golden.reference, "loss")[0], 2e-6);
    for (std::size_t i = 0; i < of_depths.size(); ++i)
      EXPECT_NEAR(losses[1 + i], of_depths[i], 4e-6) << "depth " << i + 1;
    golden.expect_gradients(1e-4);
  }
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
  EXPECT_EQ(first.targets, 3);
  EXPECT_EQ(values(second.labels), (std::vector<std::int32_t>{kNone, kNone, kNone, 23, kNone, kNone, kNone}));
  EXPECT_EQ(second.targets, 1);
  EXPECT_EQ(fourth.targets, 0);
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
