#include "data/sampling/open_dataset.h"

#include <algorithm>
#include <set>

#include "core/json/json.h"
#include "data/formats/token_stream.h"
#include "data/sampling/data_formats.h"

namespace quench {
namespace {

std::vector<std::string> files_named(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> names;
  for (const std::filesystem::path& path : paths) names.push_back(path.string());
  return names;
}

constexpr std::string_view kShardSummary = "dataset.json";  // written by quench tokenize

// Name of a PreferenceRecords; empty: not recorded.
std::string recorded_preference(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kShardSummary;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  try {
    return Json::parse_file(file).at("options").at("preference").as_string();
  } catch (const Error&) {
    return {};  // of another program or version
  }
}

// Shards of answers are for runs on answers, and no others.
void require_records(const std::vector<std::filesystem::path>& shards, PreferenceRecords wanted) {
  std::set<std::filesystem::path> folders;
  for (const std::filesystem::path& shard : shards) folders.insert(shard.parent_path());
  const auto option = [](std::string_view name) {
    return name == enum_name(PreferenceRecords::none) ? std::string("without --preference")
                                                      : fmt::format("with --preference {}", name);
  };
  for (const std::filesystem::path& folder : folders) {
    const std::string stored = recorded_preference(folder);
    // A pair counts as two labels.
    const bool fits = stored.empty() || stored == enum_name(wanted) ||
                      (stored == enum_name(PreferenceRecords::pairs) && wanted == PreferenceRecords::labels);
    QUENCH_CHECK_AS(ErrorCode::bad_config, fits,
                    "{} was tokenized {}, and the run reads shards that are tokenized {} (preference.loss): tokenize "
                    "the records again, or change preference.loss",
                    folder.string(), option(stored), option(enum_name(wanted)));
  }
}

std::shared_ptr<const TokenSource> open_source(const DataSourceSpec& source, const DatasetSpec& spec) {
  const auto paths = expand_data_files(source.paths, spec.split);
  const auto text_files =
      std::count_if(paths.begin(), paths.end(), [](const auto& path) { return text_format_of(path) != nullptr; });
  const DataFormat format = data_format_named(spec.format);
  const bool automatic = format.text == nullptr && format.tokens == nullptr;
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, !automatic || text_files == 0 || text_files == static_cast<std::ptrdiff_t>(paths.size()),
      "{} is one of several files of a data source that mixes text and tokens; list them as separate sources",
      paths.front().string());
  TokenSourceOptions options{.vocab_size = spec.vocab_size, .eos_id = spec.eos_id, .checks = spec.checks};
  if (spec.tokenizer != nullptr) {
    options.tokenizer_fingerprint = fingerprint_text(*spec.tokenizer);
    if (!options.eos_id) options.eos_id = spec.tokenizer->eos_id();
  }
  std::vector<std::string> names;
  if (format.text != nullptr || (automatic && text_files > 0)) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, spec.tokenizer != nullptr,
                    "{} is text: a tokenizer is needed to train on it", paths.front().string());
    TextCacheOptions text = spec.text;
    text.reader.format = format.text;
    for (const auto& shard : tokenize_cached(files_named(paths), *spec.tokenizer, text))
      names.push_back(shard.string());
  } else {
    options.format = format.tokens;
    require_records(paths, spec.packing.preference);
    names = files_named(paths);
  }
  return TokenStream::open(names, options);
}

}  // namespace

std::vector<std::filesystem::path> source_files(const std::vector<std::string>& patterns, DataSplit split) {
  std::vector<std::filesystem::path> files;
  const auto add = [&](const std::filesystem::path& path) {
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  };
  for (const auto& path : expand_data_files(patterns, split)) {
    std::error_code ignored;
    const MegatronPaths pair = megatron_paths(path);
    const bool paired = std::filesystem::exists(pair.bin, ignored) && std::filesystem::exists(pair.idx, ignored);
    if (!paired || std::filesystem::exists(path, ignored)) add(path);
    if (!paired) continue;
    add(pair.bin);
    add(pair.idx);
  }
  return files;
}

std::shared_ptr<const Dataset> open_dataset(const DatasetSpec& spec) {
  std::vector<WeightedRows> sources;
  for (const DataSourceSpec& source : spec.sources)
    sources.push_back({std::make_shared<PackedRows>(open_source(source, spec), spec.packing), source.weight});
  return std::make_shared<Dataset>(std::move(sources), spec.sampler);
}

std::string describe(const Dataset& dataset) {
  std::string text;
  for (std::size_t i = 0; i < dataset.sources().size(); ++i) {
    const PackedRows& rows = *dataset.sources()[i].rows;
    const PackedRows::Losses& losses = rows.losses();
    text += rows.source().describe();
    text += fmt::format("\n  source {}: {} tokens, {} rows of {}, {:.2f}% of the samples", i, rows.source().size(),
                        rows.size(), rows.seq_len(), 100 * dataset.sampler().mixture().share(i));
    if (losses.tail_tokens > 0) text += fmt::format("; {} tokens after the last full row unused", losses.tail_tokens);
    if (losses.truncated_documents > 0)
      text += fmt::format("; {} documents cut, {} tokens lost", losses.truncated_documents, losses.truncated_tokens);
    if (losses.untrained_documents > 0)
      text += fmt::format("; {} documents left out whose targets are all after the cut", losses.untrained_documents);
    if (losses.dropped_documents > 0)
      text += fmt::format("; {} documents too long and dropped, {} tokens", losses.dropped_documents,
                          losses.dropped_tokens);
    if (losses.single_token_documents > 0)
      text += fmt::format("; {} documents of one token left out", losses.single_token_documents);
    if (losses.untrained_pairs > 0)
      text += fmt::format("; {} pairs left out with an answer without a target in its part of the sequence",
                          losses.untrained_pairs);
    if (losses.padding > 0)
      text +=
          fmt::format("; {:.1f}% padding", 100 * static_cast<double>(losses.padding) /
                                               static_cast<double>(rows.size()) / static_cast<double>(rows.seq_len()));
    text += '\n';
  }
  return text;
}

}  // namespace quench
