#include "train/plan/search/plan_axis.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "distributed/mesh.h"
#include "nn/spec/tensor_parallel.h"

namespace quench {
namespace {

constexpr std::string_view kMicroBatch = "training.micro_batch_size", kOffload = "training.offload_layers";

// Value of --key=value or of --key value; nullptr without.
const std::string* find_override(const PlanRequest& request, std::string_view key) {
  const std::string flag = fmt::format("--{}", key);
  const auto found = std::ranges::find_if(
      request.overrides, [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
  return found == request.overrides.end() ? nullptr : &*found;
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) all.push_back(i);
  return all;
}

std::int64_t machines(const PlanRequest& request) {
  return std::max<std::int64_t>(1, request.gpus / request.cluster.node_size);
}

bool trains_all(const PlanRequest& request) {
  return Json::parse(plan_objectives().require(request.objective, "--objective").sections).find("lora") == nullptr &&
         std::ranges::none_of(request.overrides, [](const std::string& word) { return word.starts_with("--lora."); });
}

// float8_rowwise: smaller errors than the other fast ones (docs/reference/recipes.md).
std::vector<PlanChoice> recipes(const PlanRequest& request, const nn::ModelConfig&) {
  std::vector<PlanChoice> choices{{"bf16", {{"recipe.name", "bf16"}}}};
  if (request.cluster.rates->float8_flops > 0)
    choices.insert(choices.begin(), {"float8_rowwise", {{"recipe.name", "float8_rowwise"}}});
  return choices;
}

// Slices of the weights, within a machine.
std::vector<std::int64_t> slices(const PlanRequest& request, const nn::ModelConfig& model) {
  std::vector<std::int64_t> all;
  for (const std::int64_t count : divisors(std::gcd(request.gpus, request.cluster.node_size)))
    if (count == 1 || nn::tensor_parallel_fault(model, count).empty()) all.push_back(count);
  return all;
}

// Stages of the layers: between machines, or within the only one.
std::vector<std::int64_t> stages(const PlanRequest& request, const nn::ModelConfig& model) {
  std::vector<std::int64_t> all = divisors(machines(request) > 1 ? machines(request) : request.gpus);
  std::erase_if(all, [&](std::int64_t count) { return count > model.num_hidden_layers; });
  return all;
}

// Parts of a sequence, of 4,096 tokens and more: shorter ones compute no longer than their keys travel.
std::vector<std::int64_t> sequence_parts(const PlanRequest& request, std::int64_t ranks) {
  constexpr std::int64_t kLeastTokens = 4096;
  std::vector<std::int64_t> all;
  for (const std::int64_t count : divisors(ranks))
    if (count == 1 || (request.seq_len % (2 * count) == 0 && request.seq_len / count >= kLeastTokens))
      all.push_back(count);
  return all;
}

// Bytes of weights and of their gradients, in the smallest dtypes of the objective.
double least_bytes(const PlanRequest& request, const nn::ModelConfig& model) {
  const double each = trains_all(request) ? 4 : request.objective == "qlora" ? 0.5 : 2;
  return each * static_cast<double>(model.parameter_count());
}

std::vector<PlanChoice> process_groups(const PlanRequest& request, const nn::ModelConfig& model) {
  if (request.gpus == 1) return {{"one process"}};
  std::vector<PlanChoice> choices;
  const auto add = [&](const distributed::MeshSizes& mesh) {
    PlanChoice choice{fmt::format("shard {} x replicate {}", mesh.shard, mesh.replicate),
                      {{"parallel.shard", mesh.shard}, {"parallel.replicate", mesh.replicate}}};
    const auto axis = [&](std::string_view name, int count) {
      if (count == 1) return;
      choice.label += fmt::format(", {} {}", name, count);
      choice.values.emplace_back(fmt::format("parallel.{}", name), count);
    };
    axis("context", mesh.context);
    axis("tensor", mesh.tensor);
    axis("pipeline", mesh.pipeline);
    axis("expert", mesh.expert);
    choices.push_back(std::move(choice));
  };
  // Copies whose weights and gradients alone are larger than a GPU are left out.
  const double least = least_bytes(request, model), memory = static_cast<double>(request.cluster.gpu->memory_bytes);
  for (const std::int64_t stages : stages(request, model))
    for (const std::int64_t tensor : slices(request, model))
      for (const std::int64_t context : sequence_parts(request, request.gpus / tensor)) {
        const std::int64_t others = stages * tensor * context, ranks = request.gpus / others;
        // A stage has whole sequences: parts of few ones do not fill a pipeline.
        if (request.gpus % others != 0 || request.sequences() % ranks != 0 || (stages > 1 && context > 1)) continue;
        // Slices of stages are those of a whole machine.
        if (stages > 1 && tensor > 1 && tensor != slices(request, model).back()) continue;
        for (const std::int64_t replicas : divisors(ranks)) {
          // Next to other axes a copy is the whole cluster's or a machine's, a stage that of all its machines.
          if (others > 1 && replicas != 1 && (stages > 1 || replicas != machines(request))) continue;
          if (replicas > 1 && least * static_cast<double>(replicas) > memory * static_cast<double>(request.gpus))
            continue;
          for (const std::int64_t experts : divisors(ranks / replicas))
            if (experts == 1 ||
                (tensor * context == 1 && model.experts.count > 0 && model.experts.count % experts == 0))
              add({.replicate = static_cast<int>(replicas),
                   .shard = static_cast<int>(ranks / replicas),
                   .context = static_cast<int>(context),
                   .expert = static_cast<int>(experts),
                   .tensor = static_cast<int>(tensor),
                   .pipeline = static_cast<int>(stages)});
        }
      }
  const std::int64_t row = request.gpus * request.seq_len;  // a sequence for each GPU
  QUENCH_CHECK_AS(ErrorCode::bad_config, !choices.empty(),
                  "--tokens-per-step {}: {} sequences of {} tokens do not divide among {} GPUs, and {} is not split in "
                  "parts that do; {} tokens are {} for each GPU",
                  request.tokens_per_step, request.sequences(), request.seq_len, request.gpus, request.model,
                  (request.tokens_per_step + row - 1) / row * row, (request.tokens_per_step + row - 1) / row);
  return choices;
}

// Activations held between forward and backward pass.
std::vector<PlanChoice> activations(const PlanRequest&, const nn::ModelConfig& model) {
  const std::int64_t layers = model.num_hidden_layers;
  const auto selective = [](std::string label, std::string_view key, std::int64_t count) {
    PlanChoice choice{std::move(label), {{"training.activation_checkpoint", "selective"}}};
    if (count > 0) choice.values.emplace_back(std::string(key), count);
    choice.detour = key == kOffload;
    return choice;
  };
  // Router losses and expert parallelism need whole micro-batches.
  constexpr std::int64_t kTileTokens = 8192;
  const bool dense = model.sparse_layers() == 0;
  PlanChoice on_host{.label = dense ? "the same in tiles, inputs of all layers in host memory"
                                    : "the same, inputs of all layers in host memory",
                     .values = {{"training.activation_checkpoint", "full"}, {std::string(kOffload), layers}},
                     .detour = true};
  if (dense) on_host.values.emplace_back("training.mlp_tile_tokens", kTileTokens);
  return {{"all kept", {{"training.activation_checkpoint", "none"}}},
          selective("norms and SwiGLU recomputed", "", 0),
          selective("the same, MLP inputs of half the layers in host memory", kOffload, layers / 2),
          selective("the same, MLP inputs of all layers in host memory", kOffload, layers),
          selective("the same, MLP inputs recomputed", "training.recompute_mlp_layers", layers),
          {"whole layers recomputed", {{"training.activation_checkpoint", "full"}}},
          std::move(on_host)};
}

std::vector<PlanChoice> states(const PlanRequest& request, const nn::ModelConfig&) {
  std::vector<PlanChoice> choices{{"on the GPU"}};
  if (!trains_all(request)) return choices;
  choices.push_back({"in host memory while gradients are computed", {{"optimizer.offload_ratio", 1.0}}});
  choices.push_back(
      {"in host memory, streamed", {{"optimizer.offload_ratio", 1.0}, {"optimizer.offload_streamed", true}}});
  return choices;
}

std::vector<PlanChoice> transfers(const PlanRequest& request, const nn::ModelConfig&) {
  if (request.gpus == 1) return {{"none"}};
  return {{"weights gathered once, gradients reduced once",
           {{"parallel.reshard_after_forward", false}, {"parallel.reduce_every_micro_batch", false}}},
          {"weights gathered once a micro-batch", {{"parallel.reshard_after_forward", false}}},
          {"gradients reduced once", {{"parallel.reduce_every_micro_batch", false}}},
          {"weights gathered twice, gradients reduced in each micro-batch"}};
}

constexpr std::array kAxes{
    PlanAxis{.name = "recipe", .is_numerics = true, .choices = recipes},
    PlanAxis{.name = "processes", .ordered = false, .choices = process_groups},
    PlanAxis{.name = "activations", .ladder = true, .choices = activations},
    PlanAxis{.name = "optimizer state", .ladder = true, .choices = states},
    PlanAxis{.name = "transfers", .choices = transfers},
};

}  // namespace

std::span<const PlanAxis> plan_axes() {
  return kAxes;
}

std::vector<PlanChoice> choices_of(const PlanAxis& axis, const PlanRequest& request, const nn::ModelConfig& model) {
  std::vector<PlanChoice> choices = axis.choices(request, model);
  for (const PlanChoice& choice : choices)
    for (const auto& [key, value] : choice.values)
      if (find_override(request, key) != nullptr) return {{fmt::format("as given ({})", key)}};
  return choices;
}

std::vector<std::int64_t> micro_batches_of(const PlanRequest& request, std::int64_t sequences) {
  if (find_override(request, kMicroBatch) != nullptr) return {0};
  std::vector<std::int64_t> sizes = divisors(sequences);
  std::ranges::reverse(sizes);
  return sizes;
}

}  // namespace quench
