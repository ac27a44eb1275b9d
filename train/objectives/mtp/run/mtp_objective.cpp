#include "train/objectives/mtp/run/mtp_objective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/loss/cross_entropy.h"
#include "core/ops/reduce_sum.h"
#include "train/objective/labelled_rows.h"

namespace quench {
namespace {

MtpRows rows_of_part(const MtpRows& whole, const std::vector<std::int32_t>& tokens) {
  const auto *ids = whole.ids.data<std::int32_t>(), *labels = whole.labels.data<std::int32_t>();
  const std::span known(whole.rows.data<std::int32_t>(), static_cast<std::size_t>(whole.rows.numel()));
  std::vector<std::int32_t> later, targets, inner;
  for (const std::int32_t token : tokens) {
    if (std::ranges::binary_search(known, token)) inner.push_back(static_cast<std::int32_t>(later.size()));
    later.push_back(ids[token]);
    targets.push_back(labels[token]);
  }
  const std::int64_t rows = std::ssize(tokens), count = rows - std::ranges::count(targets, kIgnoreLabel);
  return {Tensor::from_values<std::int32_t>({rows}, later), Tensor::from_values<std::int32_t>({rows}, targets),
          Tensor::from_values<std::int32_t>({std::ssize(inner)}, inner), count,
          static_cast<float>(inner.size()) / static_cast<float>(std::max<std::size_t>(1, known.size()))};
}

}  // namespace

MtpRows mtp_rows(const Batch& batch, std::int64_t depth) {
  const std::int64_t rows = batch.input_ids.numel();
  if (batch.input_ids.device().is_meta()) {
    const Tensor ids = Tensor::empty({rows}, DType::i32, batch.input_ids.device());
    return {ids, Tensor::empty_like(ids), Tensor(), rows};
  }
  const MemoryScope scope(MemoryCategory::data);
  if (batch.part) return rows_of_part(mtp_rows(*batch.part->whole, depth), batch.part->tokens);
  const std::int32_t *ids = batch.input_ids.data<std::int32_t>(), *labels = batch.labels.data<std::int32_t>();
  std::vector<std::int32_t> later(ids, ids + rows), targets(static_cast<std::size_t>(rows), kIgnoreLabel), inner;
  for (const SequenceRange& sequence : batch.sequences) {
    const std::int64_t end = sequence.q_begin + sequence.q_length;
    for (std::int64_t row = sequence.q_begin; row < end; ++row) {
      later[static_cast<std::size_t>(row)] = ids[std::min(row + depth, end - 1)];
      if (row + depth >= end) continue;
      targets[static_cast<std::size_t>(row)] = labels[row + depth];
      inner.push_back(static_cast<std::int32_t>(row));
    }
  }
  const std::int64_t count = rows - std::ranges::count(targets, kIgnoreLabel);
  return {Tensor::from_values<std::int32_t>({rows}, later), Tensor::from_values<std::int32_t>({rows}, targets),
          Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(inner.size())}, inner), count};
}

MtpObjective::MtpObjective(const nn::CausalLm& model, double weight)
    : model_(model), depths_(model.config().mtp.layers), weight_(static_cast<float>(weight)) {
  QUENCH_CHECK(depths_ > 0, "MtpObjective: the model has no MTP layers");
}

// Means, then the shares of labels that have a target.
std::vector<std::string> MtpObjective::metric_names() const {
  std::vector<std::string> names;
  for (const std::string_view name : {"mtp_loss", "mtp_targets"})
    for (std::int64_t depth = 1; depth <= depths_; ++depth)
      names.push_back(depths_ == 1 ? std::string(name) : fmt::format("{}_{}", name, depth));
  return names;
}

autograd::Variable MtpObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                      const Tensor& metrics) {
  const Device device = in.ids.device();
  std::vector<MtpRows> depths;
  std::vector<nn::CausalLm::MtpInput> inputs;
  for (std::int64_t depth = 1; depth <= depths_; ++depth) {
    depths.push_back(mtp_rows(in.batch, depth));
    const MtpRows& rows = depths.back();
    inputs.push_back({.ids = rows.ids.to(device), .rows = {}, .part = rows.part});
    if (!rows.rows.defined()) continue;
    const std::span kept(rows.rows.data<std::int32_t>(), static_cast<std::size_t>(rows.rows.numel()));
    inputs.back().rows = autograd::select_tokens(kept, rows.ids.numel(), device);
  }
  const autograd::Variable hidden = model_.hidden(in.ids, in.context);
  const std::vector<autograd::Variable> states = model_.mtp_hidden(hidden, inputs, in.context);
  // A sharded head is gathered once for all losses; its values stay until the last, also where a head in float8 is done
  // with them.
  const auto head = model_.head_weight().acquire();
  const LabelledRows rows(in.batch.labels, device);
  autograd::Variable loss = model_.head_loss(rows.select(hidden), rows.labels(), scale, options);
  const float share = weight_ / static_cast<float>(depths_);
  std::vector<float> shares;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const LabelledRows own(depths[i].labels, device);
    Tensor losses;
    loss = autograd::join_losses(
        loss, model_.head_loss(own.select(states[i]), own.labels(), scale * share, options, &losses));
    shares.push_back(static_cast<float>(depths[i].targets) * scale);
    if (metrics.defined())
      reduce_sum({.x = losses, .out = metrics.narrow(0, static_cast<std::int64_t>(i), 1), .scale = scale});
  }
  if (metrics.defined()) metrics.narrow(0, depths_, depths_).copy_from(Tensor::from_values<float>({depths_}, shares));
  return loss;
}

std::vector<double> MtpObjective::reported(std::vector<double> means) const {
  const auto depths = static_cast<std::size_t>(depths_);
  for (std::size_t i = 0; i < depths && depths + i < means.size(); ++i) {
    double& targets = means[depths + i];
    means[i] = targets > 0 ? means[i] / targets : std::numeric_limits<double>::quiet_NaN();
    targets = std::numeric_limits<double>::quiet_NaN();
  }
  return means;
}

}  // namespace quench
