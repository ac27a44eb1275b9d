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

SaveTarget save_target(const std::filesystem::path& path, const std::string& format, const std::string& scheme,
                       const nb::kwargs& options) {
  SaveTarget target{.path = path, .format = format};
  QuantizationSection& q = target.quantization;
  q.scheme = scheme;
  for (const auto [key, value] : options) {
    const std::string name = nb::cast<std::string>(key);
    const auto texts = [&] { return nb::cast<std::vector<std::string>>(value); };
    if (name == "overwrite")
      target.overwrite = nb::cast<bool>(value);
    else if (name == "dtype")
      target.dtype = nb::cast<std::string>(value);
    else if (name == "reader")
      target.reader = nb::cast<std::string>(value);
    else if (name == "allow_requantize")
      target.allow_requantize = nb::cast<bool>(value);
    else if (name == "sparsity")
      target.sparsity = nb::cast<std::string>(value);
    else if (name == "tokenizer")
      target.tokenizer = nb::cast<std::string>(value);
    else if (name == "max_shard_bytes")
      target.max_shard_bytes = nb::cast<std::int64_t>(value);
    else if (name == "perplexity")
      target.perplexity = texts();
    else if (name == "target_bits")
      target.target_bits = nb::cast<double>(value);
    else if (name == "target_size")
      target.target_size = nb::cast<std::string>(value);
    else if (name == "method")
      q.method = nb::cast<std::string>(value);
    else if (name == "rules")
      q.rules = texts();
    else if (name == "embeddings")
      q.embeddings = nb::cast<std::string>(value);
    else if (name == "exclude")
      q.exclude = texts();
    else if (name == "calibration")
      q.calibration = texts();
    else if (name == "imatrix")
      q.imatrix = nb::cast<std::string>(value);
    else if (name == "save_imatrix")
      q.save_imatrix = nb::cast<std::string>(value);
    else if (name == "calibration_samples")
      q.calibration_samples = nb::cast<std::int64_t>(value);
    else if (name == "calibration_seq_len")
      q.calibration_seq_len = nb::cast<std::int64_t>(value);
    else if (name == "damping")
      q.damping = nb::cast<double>(value);
    else if (name == "act_order")
      q.act_order = nb::cast<bool>(value);
    else if (name == "smoothing")
      q.smoothing = nb::cast<double>(value);
    else if (name == "iterations")
      q.iterations = nb::cast<std::int64_t>(value);
    else if (name == "batch_size")
      q.batch_size = nb::cast<std::int64_t>(value);
    else
      QUENCH_FAIL(
          ErrorCode::bad_config,
          "no option \"{}\" of a saved model; options: overwrite, dtype, reader, allow_requantize, sparsity, "
          "tokenizer, max_shard_bytes, perplexity, target_bits, target_size, method, rules, embeddings, exclude, "
          "calibration, imatrix, save_imatrix, calibration_samples, calibration_seq_len, damping, act_order, "
          "smoothing, iterations, batch_size",
          name);
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
           "  options: the other options of ``quench export``: dtype, overwrite, reader, allow_requantize, sparsity,\n"
           "    tokenizer, max_shard_bytes, perplexity, target_bits, target_size, method, rules, embeddings, exclude,\n"
           "    calibration, imatrix, save_imatrix, calibration_samples, calibration_seq_len, damping, act_order,\n"
           "    smoothing, iterations, batch_size.\n\n"
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
