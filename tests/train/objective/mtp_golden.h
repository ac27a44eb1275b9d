#pragma once
// The golden checkpoint with layers of multi-token prediction (tests/reference/make_mtp.py), on any device in f32.

#include "tests/train/model_folder/golden_model.h"
#include "train/objectives/mtp/run/mtp_objective.h"

namespace quench::testing {

struct MtpGolden : GoldenModel {
  explicit MtpGolden(Device on = {})
      : GoldenModel((reference_dir() / "models/deepseek_v3_mtp").string(), on, DType::f32, true),
        device(on),
        objective(model, static_cast<double>(read_f32(reference, "weight")[0])) {
    rows.input_ids = ids.to(Device{}).view({batch, length});
    rows.labels = labels.to(Device{}).view({batch, length});
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
    const Tensor metrics = Tensor::empty({count}, DType::f32, device);
    autograd::Tape tape(level);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = objective.loss(in, 1.0f / static_cast<float>(valid), {.chunk_rows = 16}, metrics);
    }
    tape.backward(loss);
    std::vector<double> all{static_cast<double>(*loss.value().to(Device{}).data<float>())};
    const Tensor host = metrics.to(Device{});
    const float* means = host.data<float>();
    for (const double mean : objective.reported({means, means + count})) all.push_back(mean);
    return all;
  }

  // Relative error of the logits of every depth.
  void expect_depth_logits(double tolerance) const {
    const autograd::NoGrad no_grad;
    const nn::ForwardContext shared = context();
    std::vector<nn::CausalLm::MtpInput> inputs;
    for (std::int64_t depth = 1; depth <= model.config().mtp.layers; ++depth)
      inputs.push_back({mtp_rows(rows, depth).ids.to(device), {}});
    const auto states = model.mtp_hidden(model.hidden(ids, shared), inputs, shared);
    const std::vector<float> expected = read_f32(reference, "mtp_logits");
    const std::size_t size = expected.size() / states.size();
    for (std::size_t depth = 0; depth < states.size(); ++depth) {
      const Tensor logits = model.logits(states[depth]).to(Device{});
      ASSERT_EQ(static_cast<std::size_t>(logits.numel()), size);
      EXPECT_LT(relative_l2(std::span<const float>(logits.data<float>(), size),
                            std::span<const float>(expected).subspan(depth * size, size)),
                tolerance)
          << "depth " << depth + 1;
    }
  }

  // At every level of recompute: loss, twice its tolerance for each depth, relative error of every gradient.
  void expect_losses_and_gradients(double loss, double gradients) {
    const std::vector<float> of_depths = read_f32(reference, "mtp_losses");
    for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
      const std::vector<double> losses = run(level);
      EXPECT_NEAR(losses[0], read_f32(reference, "loss")[0], loss);
      for (std::size_t i = 0; i < of_depths.size(); ++i)
        EXPECT_NEAR(losses[1 + i], of_depths[i], 2 * loss) << "depth " << i + 1;
      expect_gradients(gradients);
    }
  }

  Device device;
  Batch rows;
  MtpObjective objective;
};

}  // namespace quench::testing
