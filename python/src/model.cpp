// quench.Model: opening, forward passes, quantization and saving.

#include <limits>

#include "core/ops/loss/cross_entropy.h"
#include "core/system/check.h"
#include "python/src/arrays.h"
#include "python/src/model_handle.h"
#include "train/doctor/kernel_check.h"
#include "train/model/save_target.h"

namespace quench::python {

Model& ModelHandle::require_opened(const char* method) const {
  QUENCH_CHECK_AS(ErrorCode::unsupported, opened != nullptr,
                  "{}: this model is in training; open the run's checkpoint or export after it", method);
  return *opened;
}

const Tokenizer& ModelHandle::require_tokenizer(const char* why) const {
  QUENCH_CHECK_AS(ErrorCode::not_found, tokenizer != nullptr, "the model has no tokenizer, which {} needs", why);
  return *tokenizer;
}

namespace {

ModelHandle open_model(const std::filesystem::path& path, const std::string& device, const std::string& dtype,
                       const std::filesystem::path& adapter, const std::filesystem::path& tokenizer) {
  return without_gil([&] {
    check_kernels(parse_device(device));
    auto model = std::make_shared<Model>(Model::open(
        path, {.device = device, .dtype = dtype, .adapter = adapter, .kv_cache = std::string(kAutoKvCache)}));
    model->use_adapter(adapter);
    ModelHandle handle{.owner = model, .opened = model.get(), .model = &model->model()};
    handle.tokenizer = model->find_tokenizer(tokenizer);
    handle.stop_tokens = model->token_ids(handle.tokenizer.get()).generation.eos;
    return handle;
  });
}

nn::ForwardContext context_of(const ModelHandle& self, const TokenBatch& batch) {
  std::vector<SequenceRange> rows;
  for (std::int64_t r = 0; r < batch.rows; ++r)
    rows.push_back({r * batch.length, batch.length, r * batch.length, batch.length});
  return self.model->make_context(rows, batch.rows * batch.length);
}

Tensor on_device(const ModelHandle& self, std::span<const std::int32_t> ids) {
  return Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(ids.size())}, ids)
      .to(self.model->options().device);
}

void wait_for(const Device device) {
  if (!device.is_cpu()) backend(device.type).synchronize(current_stream(device));
}

nb::object forward(const ModelHandle& self, nb::handle tokens) {
  const std::int64_t vocabulary = self.model->config().vocab_size;
  const TokenBatch batch = token_batch(tokens, vocabulary, "tokens");
  const Tensor logits = self.run([&] {
    const autograd::NoGrad no_grad;
    const nn::ForwardContext context = context_of(self, batch);
    const Tensor flat = self.model->logits(self.model->hidden(on_device(self, batch.ids), context));
    wait_for(flat.device());  // the reader of the array knows nothing of this thread's stream
    return batch.single ? flat : flat.view({batch.rows, batch.length, vocabulary});
  });
  return array_of(logits);
}

nb::object log_probabilities(const ModelHandle& self, nb::handle tokens) {
  const TokenBatch batch = token_batch(tokens, self.model->config().vocab_size, "tokens");
  QUENCH_CHECK(batch.length > 1, "tokens: one token, expected two: the first has no probability");
  TokenBatch inputs{.rows = batch.rows, .length = batch.length - 1, .single = batch.single};
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < batch.rows; ++r) {
    const auto row = batch.ids.begin() + r * batch.length;
    inputs.ids.insert(inputs.ids.end(), row, row + inputs.length);
    targets.insert(targets.end(), row + 1, row + batch.length);
  }
  const Tensor result = self.run([&] {
    const autograd::NoGrad no_grad;
    Tensor losses;
    (void)self.model->loss(on_device(self, inputs.ids), on_device(self, targets), context_of(self, inputs), 1.0f, {},
                           &losses);
    const Tensor values = losses.to(Device{}).clone();
    for (float& value : std::span(values.data<float>(), targets.size())) value = -value;
    return inputs.single ? values : values.view({inputs.rows, inputs.length});
  });
  return array_of(result);
}

// Options of save(), next to path, format and scheme.
struct SaveOption {
  std::string_view name;
  void (*set)(SaveTarget& target, nb::handle value);
};

template <auto Member>
void set_member(SaveTarget& target, nb::handle value) {
  auto& member = target.*Member;
  member = nb::cast<std::remove_reference_t<decltype(member)>>(value);
}
template <auto Member>
void set_quantization(SaveTarget& target, nb::handle value) {
  auto& member = target.quantization.*Member;
  member = nb::cast<std::remove_reference_t<decltype(member)>>(value);
}

using Section = QuantizationSection;
constexpr SaveOption kSaveOptions[] = {
    {"dtype", set_member<&SaveTarget::dtype>},
    {"overwrite", set_member<&SaveTarget::overwrite>},
    {"reader", set_member<&SaveTarget::reader>},
    {"allow_requantize", set_member<&SaveTarget::allow_requantize>},
    {"sparsity", set_member<&SaveTarget::sparsity>},
    {"rotate", set_member<&SaveTarget::rotate>},
    {"tokenizer", set_member<&SaveTarget::tokenizer>},
    {"max_shard_bytes", set_member<&SaveTarget::max_shard_bytes>},
    {"perplexity", set_member<&SaveTarget::perplexity>},
    {"target_bits", set_member<&SaveTarget::target_bits>},
    {"target_size", set_member<&SaveTarget::target_size>},
    {"search_steps", set_member<&SaveTarget::search_steps>},
    {"save_plan", set_member<&SaveTarget::save_plan>},
    {"plan", set_quantization<&Section::plan>},
    {"kv_cache", set_member<&SaveTarget::kv_cache>},
    {"kv_cache_scales", set_member<&SaveTarget::kv_cache_scales>},
    {"method", set_quantization<&Section::method>},
    {"rules", set_quantization<&Section::rules>},
    {"embeddings", set_quantization<&Section::embeddings>},
    {"exclude", set_quantization<&Section::exclude>},
    {"calibration", set_quantization<&Section::calibration>},
    {"imatrix", set_quantization<&Section::imatrix>},
    {"save_imatrix", set_quantization<&Section::save_imatrix>},
    {"calibration_samples", set_quantization<&Section::calibration_samples>},
    {"calibration_seq_len", set_quantization<&Section::calibration_seq_len>},
    {"damping", set_quantization<&Section::damping>},
    {"act_order", set_quantization<&Section::act_order>},
    {"smoothing", set_quantization<&Section::smoothing>},
    {"iterations", set_quantization<&Section::iterations>},
    {"batch_size", set_quantization<&Section::batch_size>},
};

std::string save_option_names() {
  std::string names;
  for (const SaveOption& option : kSaveOptions) names += (names.empty() ? "" : ", ") + std::string(option.name);
  return names;
}

SaveTarget save_target(const std::filesystem::path& path, const std::string& format, const std::string& scheme,
                       const nb::kwargs& options) {
  SaveTarget target{.path = path, .format = format};
  target.quantization.scheme = scheme;
  for (const auto [key, value] : options) {
    const std::string name = nb::cast<std::string>(key);
    const auto* option = std::ranges::find(kSaveOptions, name, &SaveOption::name);
    QUENCH_CHECK_AS(ErrorCode::bad_config, option != std::end(kSaveOptions),
                    "no option \"{}\" of a saved model; options: {}", name, save_option_names());
    option->set(target, value);
  }
  return target;
}

nb::object save(const ModelHandle& self, const std::filesystem::path& path, const std::string& format,
                const std::string& scheme, const nb::kwargs& options) {
  const SaveTarget target = save_target(path, format, scheme, options);
  Model& model = self.require_opened("save");
  return to_python(to_json(self.run([&] { return model.save(target); })));
}

ModelHandle quantize(const ModelHandle& self, const std::filesystem::path& path, const std::string& scheme,
                     const std::string& format, const nb::kwargs& options) {
  (void)save(self, path, format, scheme, options);
  return open_model(path, self.model->options().device.to_string(), "auto", "", "");
}

double perplexity(const ModelHandle& self, const std::vector<std::filesystem::path>& files) {
  const Model& model = self.require_opened("perplexity");
  return self.run([&] { return model.perplexity({files.begin(), files.end()}); });
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<ModelHandle> type(
      module, "Model",
      "Language model with its tokenizer.\n\n"
      "Methods release the interpreter lock; calls of one model from several threads take turns.");
  type.def_static(
          "open", open_model, nb::arg("path"), nb::kw_only(), nb::arg("device") = "auto", nb::arg("dtype") = "auto",
          nb::arg("adapter") = "", nb::arg("tokenizer") = "",
          "Opens a model folder, quantized or not, a GGUF file, a checkpoint, or the newest checkpoint of a run "
          "folder.\n\n"
          "Args:\n"
          "  device: \"auto\", \"cpu\", \"cuda\" or \"cuda:N\".\n"
          "  dtype: \"auto\" (as stored; f16 becomes f32), \"f32\" or \"bf16\".\n"
          "  adapter: PEFT adapter folder, applied to the weights.\n"
          "  tokenizer: file or folder in place of the model's own.\n\n"
          "Raises Error (\"not_found\", \"corrupt\", \"unsupported\", \"out_of_memory\") naming the file.")
      .def("forward", forward, nb::arg("tokens"),
           "Logits of the next token after each position.\n\n"
           "Args:\n"
           "  tokens: token ids, a list or an integer array on the CPU, [T] or [B, T]; rows do not see each other.\n\n"
           "Returns: f32 array [T, vocab_size] or [B, T, vocab_size] on the model's device, read through DLPack "
           "(``torch.from_dlpack``) or, on the CPU, ``numpy.asarray``; it shares no memory with later calls.\n\n"
           "Raises Error (\"invalid_argument\") for another dtype, shape or device, and ids outside of the vocabulary.")
      .def("logprobs", log_probabilities, nb::arg("tokens"),
           "Log-probability in nats of each token but the first, given the tokens before it.\n\n"
           "Args:\n"
           "  tokens: as of forward(), at least two a row.\n\n"
           "Returns: f32 array [T - 1] or [B, T - 1] on the CPU.")
      .def("save", save, nb::arg("path"), nb::arg("format") = "hf", nb::arg("scheme") = "", nb::arg("options"),
           "Writes the model with its tokenizer and card; adapters are merged, except by formats \"peft\" and "
           "\"gguf-lora\".\n\n"
           "Args:\n"
           "  path: folder, or with format \"gguf\" a file ``*.gguf``; an earlier export is replaced, other files are "
           "not.\n"
           "  format: as ``quench export --format``.\n"
           "  scheme: quantization scheme; \"\": dense weights.\n"
           "  options: the other options of ``quench export``: dtype, overwrite, reader, allow_requantize, sparsity, "
           "rotate,\n"
           "    tokenizer, max_shard_bytes, perplexity, target_bits, target_size, search_steps, save_plan, plan,\n"
           "    kv_cache, kv_cache_scales, method, rules, embeddings, exclude, calibration, imatrix, save_imatrix,\n"
           "    calibration_samples, calibration_seq_len, damping, act_order, smoothing, iterations, batch_size.\n\n"
           "Returns: dict with \"output\", \"scheme\", \"file_bytes\", ... as ``quench export --json``.")
      .def("quantize", quantize, nb::arg("path"), nb::arg("scheme"), nb::arg("format") = "compressed-tensors",
           nb::arg("options"),
           "Writes the model quantized to ``path`` and opens it there: weights stay packed. Arguments as of save().\n\n"
           "Returns: the quantized Model; this one keeps its weights.")
      .def("perplexity", perplexity, nb::arg("files"),
           "Perplexity per token of text files, in windows of the model's context, as ``quench eval``.")
      .def(
          "merge_adapters",
          [](const ModelHandle& self) {
            Model& model = self.require_opened("merge_adapters");
            self.run([&] { model.merge_adapters(); });
          },
          "Adds the adapters' updates to the weights; nothing without adapters.")
      .def_prop_ro(
          "tokenizer", [](const ModelHandle& self) { return tokenizer_object(self.tokenizer); }, "Tokenizer, or None.")
      .def_prop_ro(
          "config",
          [](const ModelHandle& self) {
            return to_python(to_hf_json(self.model->config(), self.model->options().dtype));
          },
          "Architecture, as in ``config.json``.")
      .def_prop_ro(
          "kind",
          [](const ModelHandle& self) {
            return self.opened ? std::string(to_string(self.opened->source().kind())) : "model in training";
          },
          "\"model folder\", \"GGUF file\", \"training checkpoint\", \"run folder\", ...")
      .def_prop_ro(
          "device", [](const ModelHandle& self) { return self.model->options().device.to_string(); },
          "\"cpu\" or \"cuda:0\".")
      .def_prop_ro(
          "parameters", [](const ModelHandle& self) { return self.model->config().parameter_count(); },
          "Number of parameters.")
      .def_prop_ro("vocab_size", [](const ModelHandle& self) { return self.model->config().vocab_size; })
      .def_prop_ro(
          "context_length", [](const ModelHandle& self) { return self.model->config().context_length(); },
          "Most tokens of a sequence.")
      .def_prop_ro(
          "is_quantized", [](const ModelHandle& self) { return self.opened && self.opened->is_quantized(); },
          "Weights are packed codes.");
  bind_scores(type);
  bind_generation(type);
}

}  // namespace quench::python
