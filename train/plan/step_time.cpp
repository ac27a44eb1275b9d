#include "train/plan/step_time.h"

#include <algorithm>

namespace quench {
namespace {

// Copies of pinned memory in one direction; 52 to 55 GB/s measured (docs/lab/2026-11-27.md).
constexpr double kHostLinkBytes = 50e9;
// In each of both at once, with the update of what was copied: 28 GB/s for moments in 8 bits, 34 in f32
// (docs/lab/2026-11-30-axes.md).
constexpr double kStreamedBytes = 32e9;
// The same of whole layers, which the backward pass hides.
constexpr double kStreamedLayerBytes = 45e9;
constexpr std::int64_t kWideHead = 128;
// Memory traffic per bf16 activation value, forward and backward, in bytes.
constexpr double kMlpBytes = 18;     // gated activation, per FFN column
constexpr double kStreamBytes = 49;  // two norms with residual, RoPE; per hidden column
constexpr double kLogitBytes = 6;    // cross-entropy, per vocabulary entry and depth of prediction
// Parts of an MTP layer beyond its block, per hidden column: two norms of its input (8 forward, 12 backward), their
// concatenation (8, 8), the head's norm with residual (8, 8).
constexpr double kMtpBytes = 52;
constexpr double kCastBytes = 20;  // float8 casts of a layer's GEMM operands, per input and output column
// The same of experts, with the lower rate of their grouped GEMMs: per active column, and per hidden column of a token
// and expert. From steps of mixtral-l4 and qwen3moe-l8 (docs/guide/plan.md).
constexpr double kExpertCastBytes = 51, kRoutedCastBytes = 32;
// Attention alone: the share of its forward pass, and the gain of an endless sequence over one of 8,192 tokens, from
// steps of 8b-l8 with 65,536 and 131,072 tokens (docs/lab/2026-11-30-axes.md).
constexpr double kForwardAttention = 0.2, kLongAttention = 0.168, kRatedLength = 8192, kNarrowRatedLength = 4096;
// Computation that a sent byte slows, with more than two GPUs next to two: from steps with four.
constexpr double kSlowedAmongMany = 0.5;

bool crosses_machines(const Cluster& cluster, const GroupTraffic& traffic) {
  return traffic.ranks > 1 && (traffic.ranks > cluster.node_size || !traffic.neighbours);
}

// Weights of layers are copied while layers compute.
double second_model_seconds(const DeviceRates& rates, const StepWork& work) {
  const SecondModelWork& second = work.second_model;
  const double attention = second.attention_flops_per_token;
  const double computation =
      work.tokens * ((second.flops_per_token - attention) / rates.bf16_flops +
                     attention / (second.narrow_heads ? rates.narrow_attention : rates.attention_flops)) +
      second.activation_bytes / rates.memory_bytes;
  return std::max(computation, second.host_bytes / kHostLinkBytes) + second.exposed_host_bytes / kHostLinkBytes;
}

// Rate of attention over sequences of this length, by that of the rated length and shorter ones.
double attention_gain(const StepWork& work) {
  const double rated = work.narrow_heads ? kNarrowRatedLength : kRatedLength;
  return (1 + kLongAttention) / (1 + kLongAttention * std::min(1.0, rated / std::max(1.0, work.seq_len)));
}

// Seconds of these copies that a pass of `seconds` does not hide.
double exposed_copy(double bytes, double seconds) {
  return std::max(0.0, bytes / kHostLinkBytes - seconds);
}

// The host link is used in both directions at once; a forward pass is a third of a micro-batch.
double host_copy_seconds(const StepWork& work, double computation) {
  const double forward = computation / work.micro_batches / 3, backward = 2 * forward;
  const auto of_micro_batch = [&](double out, double in) {
    return exposed_copy(out, forward) + exposed_copy(in, backward);
  };
  const double state = work.state_bytes, kept = work.kept_bytes;
  if (work.micro_batches == 1) return of_micro_batch(state + kept, state + kept);
  return of_micro_batch(state + kept, kept) + of_micro_batch(kept, state + kept) +
         (work.micro_batches - 2) * of_micro_batch(kept, kept);
}

// `passes`: seconds of the forward and backward passes.
double update_seconds(const DeviceRates& rates, const StepWork& work, double passes) {
  const double kernels = work.update_bytes / rates.memory_bytes;
  if (!work.updates_in_backward) return std::max(kernels, work.streamed_bytes / kStreamedBytes);
  return std::max(kernels, work.streamed_bytes / kStreamedLayerBytes - passes * 2 / 3 / work.micro_batches);
}

}  // namespace

void add_activation_work(const nn::ModelConfig& model, const TrainingFlops& flops, double tokens, StepWork& work) {
  const auto depths = static_cast<double>(model.mtp.layers), hidden = static_cast<double>(model.hidden_size);
  double mlp = 0, cast = 0;
  for (const auto& blocks : {model.blocks, model.mtp_blocks()})
    for (const nn::BlockSpec& block : blocks) {
      const auto columns = static_cast<double>(block.feed_forward.active_width());
      mlp += columns;
      cast += block.feed_forward.experts
                  ? kExpertCastBytes * columns +
                        kRoutedCastBytes * static_cast<double>(block.feed_forward.experts->per_token) * hidden
                  : kCastBytes * columns;
    }
  const double width = static_cast<double>(model.all_layers()) * hidden;
  work.activation_bytes = tokens * (kMlpBytes * mlp + kStreamBytes * width + kMtpBytes * depths * hidden +
                                    kLogitBytes * (1 + depths) * static_cast<double>(model.vocab_size));
  if (flops.float8 > 0) work.activation_bytes += tokens * (cast + kCastBytes * (width + depths * hidden));
  work.narrow_heads = model.head_dim < kWideHead;
}

SecondModelWork second_model_work(const nn::ModelConfig& model, std::int64_t seq_len, double tokens) {
  const double all = model.training_flops_per_token(seq_len), linear = model.training_flops_per_token(0);
  StepWork training;
  add_activation_work(model, {.high_precision = all}, tokens, training);
  return {.flops_per_token = all / 3,
          .attention_flops_per_token = (all - linear) / 3,
          .activation_bytes = training.activation_bytes / 3,
          .narrow_heads = training.narrow_heads};
}

double communication_seconds(const DeviceRates& rates, const Cluster& cluster, const GroupTraffic& traffic) {
  if (traffic.ranks <= 1 || traffic.calls == 0) return 0;
  const double local = traffic.reduces ? rates.reduce_bytes : rates.gather_bytes;
  const bool crosses = crosses_machines(cluster, traffic);
  const double rate = crosses ? std::min(local, cluster.network_bytes) : local;
  const double hop = crosses ? cluster.hop_seconds : cluster.local_hop_seconds;
  return static_cast<double>(traffic.bytes) / rate +
         static_cast<double>(traffic.calls) * static_cast<double>(traffic.ranks - 1) * hop;
}

StepTime predict_step(const DeviceRates& rates, const Cluster& cluster, const StepWork& work,
                      const std::vector<GroupTraffic>& traffic) {
  StepTime time;
  time.device = rates.device;
  const double attention = work.attention_flops_per_token;
  const double attention_rate = work.narrow_heads ? rates.narrow_attention : rates.attention_flops;
  // The forward pass is a third of a step.
  const double again = 1 + work.recomputed / 3;
  time.products = work.tokens * again *
                  ((work.flops_per_token.high_precision - attention) / rates.bf16_flops +
                   (rates.float8_flops > 0 ? work.flops_per_token.float8 / rates.float8_flops
                                           : work.flops_per_token.float8 / rates.bf16_flops));
  // MLPs are converted with other layers.
  time.products += work.tokens * work.recomputed_products /
                   (work.flops_per_token.float8 > 0 && rates.float8_flops > 0 ? rates.float8_flops : rates.bf16_flops);
  time.attention = work.tokens * (1 + kForwardAttention * (work.recomputed - work.kept_attention)) * attention /
                   (attention_rate * attention_gain(work));
  time.passes = (work.activation_bytes * again + work.base_bytes + work.adapter_bytes) / rates.memory_bytes;
  time.update = update_seconds(rates, work, time.computation());
  time.second_model = second_model_seconds(rates, work);
  time.bubble = work.bubble * (time.products + time.attention + time.passes);
  time.host_copies = host_copy_seconds(work, time.computation() - time.update);
  if (work.exchange_bytes > 0) {
    const GroupTraffic exchange{
        .ranks = work.exchange_ranks, .calls = 1, .bytes = static_cast<std::int64_t>(work.exchange_bytes)};
    time.exchange = communication_seconds(rates, cluster, exchange);
  }
  double sent = 0, waited = 0;
  GroupTraffic first, last;
  for (const GroupTraffic& group : traffic) {
    const double seconds = communication_seconds(rates, cluster, group);
    time.communication += seconds;
    if (group.waits) {
      waited += seconds;
      continue;
    }
    sent += static_cast<double>(group.bytes) * (group.ranks > 2 ? kSlowedAmongMany : 1);
    if (group.reduces)
      last = group;
    else
      first = group;
  }
  if (time.communication == 0) return time;
  time.slowed = sent * rates.seconds_per_sent_byte;
  first.bytes = static_cast<std::int64_t>(work.first_bytes);
  last.bytes = static_cast<std::int64_t>(work.last_bytes);
  first.calls = last.calls = 1;
  const double ends = communication_seconds(rates, cluster, first) + communication_seconds(rates, cluster, last);
  // The update waits for the last reduction and is not overlapped.
  const double beside = time.computation() - time.update;
  const double overlapped = time.communication - waited;
  time.exposed = waited + std::min(ends, overlapped) + std::max(0.0, overlapped - ends - beside);
  return time;
}

Json to_json(const StepTime& time) {
  Json json = Json::object();
  json.set("device", time.device);
  json.set("seconds", time.total());
  json.set("products_seconds", time.products);
  json.set("attention_seconds", time.attention);
  json.set("passes_seconds", time.passes);
  json.set("update_seconds", time.update);
  json.set("second_model_seconds", time.second_model);
  json.set("communication_seconds", time.communication);
  json.set("slowed_seconds", time.slowed);
  json.set("exposed_seconds", time.exposed);
  json.set("exchange_seconds", time.exchange);
  json.set("bubble_seconds", time.bubble);
  json.set("host_copies_seconds", time.host_copies);
  return json;
}

}  // namespace quench
