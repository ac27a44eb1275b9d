#include "train/session/data_setup.h"
#include "train/config/objective_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "core/system/signals.h"
#include "data/sampling/open_dataset.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nn/attention/layer_rotations.h"
#include "train/config/data_files.h"
#include "train/metrics/progress_line.h"
#include "train/model_folder/token_ids.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

DatasetSpec dataset_spec(const RunConfig& config, const std::vector<DataSource>& sources, const Tokenizer* tokenizer,
                         const nn::ModelConfig& model, ValidationCache* checks) {
  const DataSection& data = config.data;
  DatasetSpec spec;
  const bool mixed = std::ranges::any_of(sources, [](const DataSource& source) { return source.weight.has_value(); });
  for (const DataSource& source : sources) {
    if (mixed || spec.sources.empty()) spec.sources.push_back({{}, source.weight.value_or(1)});
    spec.sources.back().paths.push_back(source.path);
  }
  spec.format = data.format;
  spec.checks = checks;
  spec.vocab_size = static_cast<std::uint64_t>(model.vocab_size);
  spec.tokenizer = tokenizer;
  // Token files without a document table: EOS of the tokenizer, else of the model.
  if (tokenizer == nullptr && !model.eos_token_ids.empty())
    spec.eos_id = static_cast<std::int32_t>(model.eos_token_ids.front());
  spec.packing.seq_len = data.seq_len;
  spec.packing.packing = data.packing;
  spec.packing.multipack = data.multipack;
  spec.packing.long_documents = data.on_long;
  spec.packing.answers = answer_records(config);
  if (nn::rotations_depend_on_length(model, data.seq_len))
    spec.packing.may_share = [model](std::int64_t first, std::int64_t second) {
      return nn::rotated_alike(model, first, second);
    };
  spec.text.reader = chat_options(data);
  spec.text.reader.answers = answer_records(config);
  spec.sampler.seed = static_cast<std::uint64_t>(config.training.seed);
  spec.sampler.shuffle = data.shuffle;
  spec.text.folder = data.cache;
  spec.text.progress = [line = std::make_shared<ProgressLine>("tokenizing")](const TokenizeProgress& progress) {
    line->update(progress.bytes, progress.total_bytes);
  };
  spec.text.watch_stop = poll_stop_signals;
  spec.text.reader.field = data.text_field;
  spec.text.reader.columns = data.columns;
  spec.text.reader.train_on = data.train_on;
  spec.text.reader.special_text = data.special_text;
  spec.text.reader.on_bad_record = data.on_bad_record;
  spec.text.reader.vocab_size = model.vocab_size;
  spec.text.encoder.eos = data.eos;
  return spec;
}

void append_lines(std::vector<std::string>& plan, const std::string& prefix, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) plan.push_back(prefix + line);
}

}  // namespace

ReaderOptions chat_options(const DataSection& data) {
  ReaderOptions options;
  set_chat_template(options, data.chat_template);
  options.chat_date = data.chat_date;
  if (!data.chat_template_kwargs.empty()) options.chat_template_kwargs = data.chat_template_kwargs;
  return options;
}

std::int64_t global_batch_size(const RunConfig& config) {
  return config.training.global_batch_size.value_or(config.training.micro_batch_size * config.parallel.data_ranks());
}

void require_vocabulary(const RunConfig& config, const nn::ModelConfig& model, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer->vocab_size() <= model.vocab_size,
                  "data.tokenizer has {} tokens, the model's vocab_size is {}: {}", tokenizer->vocab_size(),
                  model.vocab_size,
                  config.model.init == ModelSection::Init::load
                      ? "use the model's tokenizer, and list tokens that it lacks in model.add_tokens"
                      : "set model.vocab_size to at least that");
}

DataSetup open_data(const RunConfig& config, const nn::ModelConfig& model, ValidationCache* checks) {
  DataSetup setup;
  setup.tokenizer = run_tokenizer(config);
  require_vocabulary(config, model, setup.tokenizer.get());
  const DatasetSpec train = dataset_spec(config, config.data.train, setup.tokenizer.get(), model, checks);
  if (const std::optional<double> share = config.data.validation_split) {
    HeldOutData data = [&] {
      try {
        return open_held_out(train, *share);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("data.validation_split: {}", error.what()));
      }
    }();
    setup.train = std::move(data.train);
    setup.validation = std::move(data.validation);
    setup.plan.push_back(fmt::format("{} of {} records are held out for validation (data.validation_split)",
                                     data.held_out, data.records));
  } else {
    setup.train = open_dataset(train);
  }
  append_lines(setup.plan, "train: ", describe(*setup.train));
  if (setup.validation) append_lines(setup.plan, "validation: ", describe(*setup.validation));
  if (!config.data.validation.empty()) {
    DatasetSpec spec = dataset_spec(config, config.data.validation, setup.tokenizer.get(), model, checks);
    spec.split = DataSplit::validation;
    spec.sampler.shuffle = false;  // equal in all evaluations
    spec.packing.drop_last = false;
    setup.validation = open_dataset(spec);
    append_lines(setup.plan, "validation: ", describe(*setup.validation));
  }
  return setup;
}

std::string validation_warning(const RunConfig& config, const DataSetup& data) {
  if (data.validation == nullptr) return {};
  std::uint64_t tokens = 0;
  for (const WeightedRows& source : data.validation->sources())
    tokens += source.rows->size() * static_cast<std::uint64_t>(source.rows->seq_len()) - source.rows->losses().padding;
  const auto length = static_cast<std::uint64_t>(data.validation->seq_len());
  if (tokens >= length) return {};
  return fmt::format(
      "{} holds {} tokens, less than one sequence of {} (data.seq_len): the validation loss is that of "
      "these {} tokens alone; name more held-out data",
      config.data.validation_split ? "data.validation_split" : "data.validation", tokens, length, tokens);
}

std::string fit_batch(RunConfig& config, const Dataset& train) {
  TrainingSection& training = config.training;
  const auto rows = static_cast<std::int64_t>(train.row_count());
  const std::int64_t ranks = config.parallel.data_ranks(), wanted = global_batch_size(config);
  if (wanted <= rows) return {};
  training.micro_batch_size = std::min(training.micro_batch_size, std::max<std::int64_t>(1, rows / ranks));
  const std::int64_t unit = training.micro_batch_size * ranks;
  training.global_batch_size = std::max<std::int64_t>(1, rows / unit) * unit;
  const std::string fitted =
      *training.global_batch_size <= rows
          ? fmt::format("a step takes {} of them, in micro-batches of {}", *training.global_batch_size,
                        training.micro_batch_size)
          : fmt::format("a step has one for each of {} processes, the last ones padding or a repetition", ranks);
  return fmt::format(
      "the training data are {} sequence{} of {} tokens, fewer than the {} of a step (training.global_batch_size): {}; "
      "add data, or lower data.seq_len or training.global_batch_size",
      rows, rows == 1 ? "" : "s", train.seq_len(), wanted, fitted);
}

std::optional<std::uint64_t> end_sample(const RunConfig& config, const Dataset& train) {
  if (!config.training.epochs) return std::nullopt;
  // 0.1 x 30 is 3.
  return static_cast<std::uint64_t>(
      std::ceil(static_cast<double>(train.row_count()) * *config.training.epochs * (1 - 1e-12)));
}

std::int64_t total_steps(const RunConfig& config, const Dataset& train, std::int64_t step, std::int64_t samples) {
  std::int64_t steps = config.training.steps.value_or(INT64_MAX);
  if (const auto end = end_sample(config, train)) {
    const double rest = static_cast<double>(*end) - static_cast<double>(samples);
    const auto more =
        static_cast<std::int64_t>(std::max(0.0, std::ceil(rest / static_cast<double>(global_batch_size(config)))));
    const std::int64_t each = steps_of_data(config), of_last = (each - step % each) % each;
    steps = std::min(steps, step + of_last + more * each);
  }
  return steps;
}

}  // namespace quench
