// quench forward: logits, loss and gradients of one batch, written to files, for parity tests.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "apps/common.h"
#include "apps/options/recipe_options.h"
#include "apps/verbs.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/log.h"
#include "core/system/output_file.h"
#include "export/formats/fused_experts.h"
#include "recipes/convert.h"
#include "train/model/model.h"
#include "train/model_folder/export_folder.h"

namespace quench {
namespace {

struct ForwardOptions {
  std::string model;
  std::string adapter;
  std::string input;
  std::string output;
  bool overwrite = false;
  RecipeArguments recipe;
  std::string device = "auto";
  std::string dtype = "auto";
  bool grads = false;
  bool json = false;
  int threads = 0;
  std::string memory_limit;
};

// i64 [B,T] of a safetensors file, range-checked and converted to i32.
Tensor read_ids(const SafetensorsReader& reader, std::string_view name, std::int64_t vocab_size, bool ignore_allowed) {
  const SafetensorsEntry& entry = reader.at(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, entry.dtype == DType::i64 && entry.shape.rank() == 2,
                  "{}: {} is {}{}, expected I64 [B, T]", reader.path().string(), name, entry.dtype_name,
                  entry.shape.to_string());
  std::vector<std::int64_t> raw(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(raw)));
  const Tensor ids = Tensor::empty(entry.shape, DType::i32);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const bool ok = (raw[i] >= 0 && raw[i] < vocab_size) || (ignore_allowed && raw[i] == kIgnoreLabel);
    QUENCH_CHECK_AS(ErrorCode::bad_config, ok, "{}: {} holds {} at element {}, outside the vocabulary of {}",
                    reader.path().string(), name, raw[i], i, vocab_size);
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(raw[i]);
  }
  return ids;
}

// Shift of Hugging Face labels (unshifted) to next-token targets. `valid` receives the number of scored labels.
Tensor shift_labels(const Tensor& labels, std::int64_t& valid) {
  const std::int64_t batch = labels.size(0), length = labels.size(1);
  const Tensor shifted = Tensor::empty({batch * length}, DType::i32);
  const auto* in = labels.data<std::int32_t>();
  auto* out = shifted.data<std::int32_t>();
  valid = 0;
  for (std::int64_t i = 0; i < batch * length; ++i) {
    out[i] = (i + 1) % length == 0 ? kIgnoreLabel : in[i + 1];
    valid += out[i] == kIgnoreLabel ? 0 : 1;
  }
  return shifted;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw_data()), tensor.nbytes()};
}

// Gradients of all trainable parameters (with an adapter, its own) in f32, under the names and in the layout of the
// family's checkpoints.
void add_gradients(nn::CausalLm& model, bool adapter, std::vector<Tensor>& kept, std::vector<SafetensorsItem>& items) {
  std::vector<ModelTensor> gradients;
  for (nn::Parameter* parameter : model.parameters()) {
    if (!parameter->variable.requires_grad()) continue;
    const Tensor gradient = parameter->variable.grad();
    const Tensor host = gradient.defined() ? gradient.to(Device{}) : Tensor::zeros(parameter->global_shape, DType::f32);
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      const Tensor rows = host.narrow(0, piece.row_begin, piece.rows);
      gradients.push_back({.name = piece.hf_name,
                           .layer = "",
                           .shape = rows.shape(),
                           .value = [rows] { return rows; },
                           .parameter = parameter,
                           .piece = &piece,
                           .quantized = nullptr});
    }
  }
  for (const ModelTensor& gradient : adapter ? gradients : fuse_experts(gradients, model.config())) {
    kept.push_back(gradient.value());
    items.push_back({"grad." + gradient.name, DType::f32, gradient.shape, bytes_of(kept.back())});
  }
}

// Names of f32 items with NaN or infinity.
std::vector<std::string> nonfinite_names(const std::vector<SafetensorsItem>& items) {
  std::vector<std::string> names;
  for (const SafetensorsItem& item : items) {
    const std::span values(reinterpret_cast<const float*>(item.data.data()), item.data.size() / sizeof(float));
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) names.push_back(item.name);
  }
  return names;
}

// True for a file written by this verb: logits, loss and gradients only.
bool is_forward_output(const std::filesystem::path& file) {
  try {
    const SafetensorsReader reader(file);
    const auto known = [](const SafetensorsEntry& entry) {
      return entry.name == "logits" || entry.name == "loss" || entry.name.starts_with("grad.");
    };
    return reader.find("logits") != nullptr && std::ranges::all_of(reader.header().entries, known);
  } catch (const Error&) {
    return false;
  }
}

void require_output(const ForwardOptions& o) {
  namespace fs = std::filesystem;
  const fs::path model = o.model;
  OutputFileRules rules{.overwrite = o.overwrite,
                        .stream = false,
                        .inputs = {o.input, model / kModelFileName, model / kModelIndexName},
                        .is_own = is_forward_output};
  std::error_code ignored;
  for (fs::directory_iterator it(model, ignored); !ignored && it != fs::directory_iterator(); it.increment(ignored))
    if (is_export_file(it->path().filename().string())) rules.inputs.push_back(it->path());
  require_output_file(o.output, rules);
}

void run(const ForwardOptions& o) {
  o.recipe.check();
  set_threads(o.threads);
  limit_gpu_memory(o.device, o.memory_limit);
  require_output(o);
  const SafetensorsReader reader(o.input);
  Model loaded = Model::open(
      o.model,
      {.device = o.device, .dtype = o.dtype, .trainable = o.grads, .adapter = o.adapter, .mtp = MtpLayers::left_out});
  loaded.use_adapter(o.adapter, {.trainable = o.grads});
  nn::CausalLm& model = loaded.model();
  const auto conversion = o.recipe.apply(loaded);
  if (o.recipe.given() && !o.json) std::fputs(recipes::conversion_report(conversion).c_str(), stdout);

  const Tensor ids = read_ids(reader, "input_ids", loaded.config().vocab_size, false);
  const bool has_labels = reader.find("labels") != nullptr;
  QUENCH_CHECK_AS(ErrorCode::bad_config, has_labels || !o.grads, "{} has no labels, which --grads needs", o.input);
  const std::int64_t batch = ids.size(0), length = ids.size(1), tokens = batch * length;
  std::vector<SequenceRange> rows;
  for (std::int64_t b = 0; b < batch; ++b) rows.push_back({b * length, length, b * length, length});
  const nn::ForwardContext context = model.make_context(rows, tokens);
  const Device device = model.options().device;
  const Tensor flat = ids.view({tokens}).to(device);

  std::vector<Tensor> kept;
  std::vector<SafetensorsItem> items;
  {
    const autograd::NoGrad no_grad;
    kept.push_back(model.logits(model.hidden(flat, context)).to(Device{}));
    items.push_back({"logits", DType::f32, {batch, length, loaded.config().vocab_size}, bytes_of(kept.back())});
  }
  Json result = Json::object();
  if (has_labels) {
    std::int64_t valid = 0;
    const Tensor labels = shift_labels(read_ids(reader, "labels", loaded.config().vocab_size, true), valid).to(device);
    autograd::Tape tape;
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model.loss(flat, labels, context, 1.0f / static_cast<float>(std::max<std::int64_t>(valid, 1)));
    }
    kept.push_back(loss.value().to(Device{}));
    items.push_back({"loss", DType::f32, {1}, bytes_of(kept.back())});
    result.set("loss", static_cast<double>(*kept.back().data<float>()));
    result.set("valid_tokens", valid);
    if (o.grads) {
      tape.backward(loss);
      add_gradients(model, !o.adapter.empty(), kept, items);
    }
  }
  const std::vector<std::string> nonfinite = nonfinite_names(items);
  if (!nonfinite.empty()) QUENCH_LOG_WARN("not finite, and written as they are: {}", fmt::join(nonfinite, ", "));
  Json names = Json::array();
  for (const std::string& name : nonfinite) names.push_back(name);
  result.set("nonfinite", std::move(names));
  write_safetensors(o.output, std::move(items));
  result.set("output", o.output);
  result.set("batch", batch);
  result.set("tokens", tokens);
  if (o.json) return print_json(result);
  if (const Json* loss = result.find("loss"))
    std::printf("loss %.6f over %s tokens\n", loss->as_double(), result.at("valid_tokens").dump().c_str());
  std::printf("wrote %s\n", o.output.c_str());
}

}  // namespace

void add_forward_verb(const Command& app) {
  auto options = std::make_shared<ForwardOptions>();
  const Command verb =
      app.add_command("forward", "Logits, loss and gradients of one batch, for comparing with other programs");
  verb.footer(
      "Example: quench forward --model models/llama --input batch.safetensors --output out.safetensors --grads");
  verb.add_option("--model", options->model, "Model folder, GGUF file, checkpoint or run folder")
      .takes_hub_name()
      .required();
  verb.add_option("--adapter", options->adapter, "PEFT adapter folder; --grads gives its gradients").takes_hub_name();
  verb.add_option("--input", options->input, "safetensors with input_ids (and labels), I64 [B,T]; -100 is ignored")
      .required();
  verb.add_option("--output", options->output, "safetensors to write: logits, loss, grad.<name>").required();
  verb.add_flag("--overwrite", options->overwrite, "Replace a file that this verb did not write");
  verb.add_flag("--grads", options->grads, "Write gradients of the mean loss");
  options->recipe.add_to(verb);
  verb.add_option("--device", options->device, "auto, cpu, cuda or cuda:N").show_default();
  verb.add_option("--memory-limit", options->memory_limit, kMemoryLimitHelp);
  verb.add_option("--dtype", options->dtype, "auto (as stored), f32 or bf16").show_default();
  verb.add_option("--threads", options->threads, "CPU threads; 0: all").show_default();
  verb.add_flag("--json", options->json, "Print the result as JSON");
  verb.on_run([options] { run(*options); });
}

}  // namespace quench
