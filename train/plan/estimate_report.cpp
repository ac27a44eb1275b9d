#include "core/system/check.h"
#include "train/metrics/step_metrics.h"
#include "train/plan/estimate.h"
#include "train/plan/memory_holders.h"

namespace quench {
namespace {

std::string time_lines(const RunEstimate& e) {
  if (!e.time) return {};
  const StepTime& t = *e.time;
  const auto ms = [](double seconds) { return fmt::format("{:.1f}", seconds * 1e3); };
  std::string text =
      fmt::format("\nstep time on {}, ms: {}, {} tokens/s a GPU (docs/guide/scaling.md)\n", t.device, ms(t.total()),
                  format_count(static_cast<std::int64_t>(static_cast<double>(e.tokens_per_step) /
                                                         static_cast<double>(e.ranks) / t.total())));
  const auto row = [&](std::string_view name, double seconds) {
    if (seconds > 0) text += fmt::format("  {:<22}{:>12}\n", name, ms(seconds));
  };
  row("GEMMs", t.products);
  row("attention", t.attention);
  row("passes over memory", t.passes);
  row("update", t.update);
  row("teacher or reference", t.second_model);
  row("slowed by transfers", t.slowed);
  row("waiting for transfers", t.exposed);
  row("expert all-to-all", t.exchange);
  row("pipeline bubble", t.bubble);
  row("copies to the host", t.host_copies);
  if (t.communication > 0)
    text += fmt::format("  transfers take {} ms, on nodes of {} GPUs{}\n", ms(t.communication), e.cluster.node_size,
                        e.ranks > e.cluster.node_size ? fmt::format(" with {:.0f} GB/s from each GPU to other nodes",
                                                                    e.cluster.network_bytes / 1e9)
                                                      : "");
  return text;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

// Seconds that a step of one process takes at the peak of the planned GPU's data sheet.
std::optional<double> least_step_seconds(const RunEstimate& e) {
  const PlannedGpu* gpu = e.cluster.gpu;
  if (gpu == nullptr || e.dtype != DType::bf16) return std::nullopt;
  const auto seconds = sol_seconds(e.flops_per_token, gpu->name);
  if (!seconds) return std::nullopt;
  return *seconds * static_cast<double>(e.tokens_per_step) / static_cast<double>(e.ranks);
}

}  // namespace

std::string to_string(const RunEstimate& e) {
  std::string text =
      fmt::format("parameters       {}{}\ntokens a step    {}\nFLOPs a step     {:.3g}: {}\n\nmemory, MiB\n",
                  format_count(e.parameters),
                  e.trained_parameters > 0 ? fmt::format(", {} trained", format_count(e.trained_parameters)) : "",
                  format_count(e.tokens_per_step), e.flops_per_token.total() * static_cast<double>(e.tokens_per_step),
                  shares(e.flops_per_token, e.dtype, recipes::find_recipe(e.recipe).capabilities.codes()));
  if (e.cluster.gpu != nullptr) {
    const auto seconds = least_step_seconds(e);
    text.insert(0,
                fmt::format("GPU              {}{}\n", e.cluster.gpu->title(),
                            seconds ? fmt::format("; at its peak (data sheet) a step takes {:.3g} s", *seconds) : ""));
  }
  if (e.second_model_flops_per_token > 0)
    text.insert(text.find("\n\nmemory"),
                fmt::format("\n                 and {:.3g} of the forward pass of the teacher or reference",
                            e.second_model_flops_per_token * static_cast<double>(e.tokens_per_step)));
  if (e.ranks > 1)
    text.insert(
        0, fmt::format(
               "processes        {}; memory is that of one\n{}"
               "sent in a step   {} MiB of weights, {} MiB of gradients{}, by each process\n",
               describe_sizes(e.mesh), describe_mesh(e.mesh, static_cast<int>(std::min(e.cluster.node_size, e.ranks))),
               mib(e.gather_bytes), mib(e.reduce_bytes),
               e.waited_rows().empty() ? "" : fmt::format(", {} MiB of {}", mib(e.context_bytes), e.waited_rows())));
  if (e.mesh.pipeline > 1)
    text.insert(
        text.find("parameters"),
        fmt::format("stages           {}; memory is that of stage {}, which needs most; {} MiB of hidden states "
                    "and their gradients sent by its processes each in a step\n",
                    e.mesh.pipeline, e.stage, mib(e.message_bytes)));
  if (e.expert > 1)
    text.insert(text.find("parameters"),
                fmt::format("experts          split over {} processes; {} MiB of rows sent by each in a step\n",
                            e.expert, mib(e.exchange_bytes)));
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const std::int64_t bytes = e.device.peak_by_category[static_cast<std::size_t>(i)];
    if (bytes > 0) text += fmt::format("  {:<22}{:>12}\n", to_string(static_cast<MemoryCategory>(i)), mib(bytes));
  }
  const auto row = [&](std::string_view name, std::int64_t bytes) {
    if (bytes > 0) text += fmt::format("  {:<22}{:>12}\n", name, mib(bytes));
  };
  const auto host_rows = [&] {
    row("batches made ahead", e.data_bytes);
    row("checkpoint staging", e.staging_bytes);
    row("activations sent away", e.offload_bytes);
    row("optimizer state offloaded", e.state_offload_bytes);
    row("second model's weights", e.second_model_host_bytes);
    row("program and libraries", e.process_bytes);
  };
  const auto totals = [&](std::int64_t needed, std::optional<std::int64_t> available) {
    text += fmt::format("  {:<22}{:>12}\n  {:<22}{:>12}\n", "total at peak", mib(needed), "available",
                        available ? mib(*available) : "unknown");
  };
  row("unused within segments", e.device.peak_reserved - e.device.peak);
  row(e.teacher_logits_bytes > 0 ? "teacher, of these" : "reference, of these", e.teacher_bytes);
  row("its logits, of these", e.teacher_logits_bytes);
  row("reward model, of these", e.reward_model_bytes);
  row("keys while sampling", e.sampling_cache_bytes);
  row("whole weights, then", e.gathered_bytes);
  row("reference, at the start", e.reference_bytes);
  if (e.host_bytes == 0) host_rows();
  totals(e.total_bytes, e.available_bytes);
  row("memory limit", e.memory_limit);
  text += "\nlargest holders at the peak, MiB\n";
  for (const MemoryHolder& holder : memory_holders(e.device))
    text += fmt::format("  {:<26}{:>8}{:>6.0f}%\n", holder.name, mib(holder.bytes),
                        100.0 * static_cast<double>(holder.bytes) / static_cast<double>(e.device.peak));
  if (e.host_bytes > 0) {
    text += "\nhost memory, MiB\n";
    host_rows();
    totals(e.host_bytes, e.host_available_bytes);
  }
  text += time_lines(e);
  if (e.recipe_assumed)
    text += fmt::format("\nrecipe.name is \"auto\", chosen when the run starts: this is for {}\n", e.recipe);
  if (e.dropped_kept_weights)
    text += "\nrecipe.keep_weights is false: with kept quantized weights the run does not fit\n";
  text += fmt::format(
      "\none checkpoint on disk: {} MiB, {} of them optimizer state (optimizer.state, "
      "training.master_split)\n",
      mib(e.checkpoint_bytes), mib(e.checkpoint_state_bytes));
  if (e.checkpoint_count > 0)
    text +=
        fmt::format("checkpoint.folder: up to {} MiB, {} of them with the one being written (checkpoint.keep_latest)\n",
                    mib(e.checkpoint_count * e.checkpoint_bytes), e.checkpoint_count);
  text += fmt::format("{}\n", !e.fits()           ? "DOES NOT FIT"
                              : e.available_bytes ? "fits"
                                                  : "fits a device with that much memory");
  return text;
}

Json to_json(const RunEstimate& e) {
  Json json = Json::object();
  json.set("recipe", e.recipe);
  json.set("recipe_assumed", e.recipe_assumed);
  json.set("dropped_kept_weights", e.dropped_kept_weights);
  json.set("parameters", e.parameters);
  json.set("active_parameters", e.active_parameters);
  json.set("tokens_per_step", e.tokens_per_step);
  json.set("flops_per_token", e.flops_per_token.total());
  json.set("float8_flops_per_token", e.flops_per_token.float8);
  json.set("second_model_flops_per_token", e.second_model_flops_per_token);
  Json memory = Json::object();
  for (int i = 0; i < kMemoryCategoryCount; ++i)
    memory.set(to_string(static_cast<MemoryCategory>(i)), e.device.peak_by_category[static_cast<std::size_t>(i)]);
  memory.set("teacher", e.teacher_bytes);
  memory.set("teacher_logits", e.teacher_logits_bytes);
  memory.set("sampling_cache", e.sampling_cache_bytes);
  memory.set("sampling_weights", e.gathered_bytes);
  memory.set("reward_model", e.reward_model_bytes);
  memory.set("reference", e.reference_bytes);
  memory.set("batches", e.data_bytes);
  memory.set("checkpoint_staging", e.staging_bytes);
  memory.set("offload", e.offload_bytes);
  memory.set("optimizer_offload", e.state_offload_bytes);
  memory.set("second_model_offload", e.second_model_host_bytes);
  memory.set("process", e.process_bytes);
  json.set("memory_bytes", std::move(memory));
  Json holders = Json::array();
  for (const MemoryHolder& holder : memory_holders(e.device)) {
    Json entry = Json::object();
    entry.set("name", holder.name);
    entry.set("bytes", holder.bytes);
    holders.push_back(std::move(entry));
  }
  json.set("memory_holders", std::move(holders));
  json.set("reserved_bytes", e.device.peak_reserved);
  json.set("total_bytes", e.total_bytes);
  json.set("available_bytes", e.available_bytes ? Json(*e.available_bytes) : Json());
  json.set("memory_limit_bytes", e.memory_limit > 0 ? Json(e.memory_limit) : Json());
  json.set("checkpoint_bytes", e.checkpoint_bytes);
  json.set("checkpoint_state_bytes", e.checkpoint_state_bytes);
  json.set("checkpoint_count", e.checkpoint_count);
  json.set("ranks", e.ranks);
  json.set("shard", e.shard);
  json.set("replicate", e.replicate);
  json.set("context", e.context);
  json.set("expert", e.expert);
  json.set("tensor", e.mesh.tensor);
  json.set("context_bytes_per_step", e.context_bytes);
  json.set("exchange_bytes_per_step", e.exchange_bytes);
  json.set("pipeline", e.mesh.pipeline);
  json.set("pipeline_stage", e.stage);
  json.set("message_bytes_per_step", e.message_bytes);
  json.set("gather_bytes_per_step", e.gather_bytes);
  json.set("reduce_bytes_per_step", e.reduce_bytes);
  json.set("gpu", e.cluster.gpu != nullptr ? Json(e.cluster.gpu->title()) : Json());
  const auto least = least_step_seconds(e);
  json.set("least_step_seconds", least ? Json(*least) : Json());
  json.set("step_time", e.time ? to_json(*e.time) : Json());
  json.set("host_bytes", e.host_bytes);
  json.set("host_available_bytes", e.host_available_bytes ? Json(*e.host_available_bytes) : Json());
  json.set("fits", e.fits());
  return json;
}

void require_memory(const RunEstimate& e, Device target) {
  if (e.fits()) return;
  QUENCH_CHECK_AS(
      ErrorCode::out_of_memory, !e.fits_device(),
      "this run needs about {} MiB of host memory in addition to {}, {} MiB are available\n{}set checkpoint.async or "
      "the offload of a second model (section of the training objective) to false, or lower training.offload_layers, "
      "optimizer.offload_ratio or data.prefetch",
      mib(e.host_bytes), target.to_string(), mib(e.host_available_bytes.value_or(0)), to_string(e));
  QUENCH_FAIL(ErrorCode::out_of_memory,
              "this run needs about {} MiB on {}, {} MiB are available{}\n{}reduce training.micro_batch_size or "
              "data.seq_len, set training.activation_checkpoint to \"selective\" (and then raise "
              "training.recompute_mlp_layers{}) or to \"full\", lower training.loss_chunk_size{}",
              mib(e.total_bytes), target.to_string(), mib(e.available_bytes.value_or(0)),
              e.memory_limit > 0 ? " under training.memory_limit" : "", to_string(e),
              target.is_cpu() ? "" : " or training.offload_layers",
              target.is_cpu()
                  ? ", or set checkpoint.async to false"
                  : ", raise optimizer.offload_ratio, with optimizer.offload_streamed, or set training.master_split");
}

}  // namespace quench
