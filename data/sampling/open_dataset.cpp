#include "data/sampling/open_dataset.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/json/json.h"
#include "data/formats/token_stream.h"
#include "data/sampling/data_formats.h"
#include "data/sampling/document_split.h"

namespace quench {
namespace {

std::vector<std::string> files_named(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> names;
  for (const std::filesystem::path& path : paths) names.push_back(path.string());
  return names;
}

constexpr std::string_view kShardSummary = "dataset.json";  // written by quench tokenize

// Name of a AnswerRecords; empty: not recorded.
std::string recorded_answers(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kShardSummary;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  try {
    return Json::parse_file(file).at("options").at("preference").as_string();
  } catch (const Error&) {
    return {};  // written by another program or version
  }
}

// Shards of answers are for runs on answers, and no others.
void require_records(const std::vector<std::filesystem::path>& shards, AnswerRecords wanted) {
  std::set<std::filesystem::path> folders;
  for (const std::filesystem::path& shard : shards) folders.insert(shard.parent_path());
  const auto option = [](std::string_view name) {
    return name == enum_name(AnswerRecords::none) ? std::string("without --preference")
                                                  : fmt::format("with --preference {}", name);
  };
  for (const std::filesystem::path& folder : folders) {
    const std::string stored = recorded_answers(folder);
    // A pair counts as two labels.
    const bool fits = stored.empty() || stored == enum_name(wanted) ||
                      (stored == enum_name(AnswerRecords::pairs) && wanted == AnswerRecords::labels);
    QUENCH_CHECK_AS(ErrorCode::bad_config, fits,
                    "{} was tokenized {}, and the run reads shards that are tokenized {} (preference.loss): tokenize "
                    "the records again, or change preference.loss",
                    folder.string(), option(stored), option(enum_name(wanted)));
  }
}

std::shared_ptr<const TokenSource> open_path(const std::string& pattern, const DatasetSpec& spec) {
  const auto paths = expand_data_files({pattern}, spec.split);
  const auto text_files =
      std::count_if(paths.begin(), paths.end(), [](const auto& path) { return text_format_of(path) != nullptr; });
  const DataFormat format = data_format_named(spec.format);
  const bool automatic = format.text == nullptr && format.tokens == nullptr;
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  !automatic || text_files == 0 || text_files == static_cast<std::ptrdiff_t>(paths.size()),
                  "{} is one of several files of a folder or pattern that mixes text and tokens; list them one by one",
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
    require_records(paths, spec.packing.answers);
    names = files_named(paths);
  }
  return TokenStream::open(names, options);
}

struct NamedSource {
  std::string name;
  std::shared_ptr<const TokenSource> tokens;
};

std::vector<NamedSource> open_paths(const DataSourceSpec& source, const DatasetSpec& spec) {
  std::vector<NamedSource> paths;
  for (const std::string& path : source.paths) paths.push_back({path, open_path(path, spec)});
  return paths;
}

WeightedRows concatenated(std::vector<NamedSource> paths, const PackingOptions& packing, double weight) {
  std::vector<SourcePart> parts;
  std::vector<std::shared_ptr<const TokenSource>> streams;
  std::uint64_t begin = 0;
  for (NamedSource& path : paths) {
    parts.push_back({path.name, begin, path.tokens->size()});
    begin += path.tokens->size();
    streams.push_back(std::move(path.tokens));
  }
  return {std::make_shared<PackedRows>(std::make_shared<TokenStream>(std::move(streams)), packing), weight,
          std::move(parts)};
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
    sources.push_back(concatenated(open_paths(source, spec), spec.packing, source.weight));
  return std::make_shared<Dataset>(std::move(sources), spec.sampler);
}

HeldOutData open_held_out(const DatasetSpec& spec, double share) {
  std::vector<NamedSource> all;
  for (const DataSourceSpec& source : spec.sources)
    std::ranges::move(open_paths(source, spec), std::back_inserter(all));
  std::vector<std::shared_ptr<const TokenSource>> streams;
  for (const NamedSource& path : all) streams.push_back(path.tokens);
  DocumentSplit split =
      split_documents(streams, share, spec.sampler.seed, spec.packing.answers == AnswerRecords::pairs ? 2 : 1);
  std::vector<WeightedRows> sources;
  std::vector<NamedSource> held_out;
  std::size_t next = 0;
  for (const DataSourceSpec& source : spec.sources) {
    std::vector<NamedSource> kept;
    for (std::size_t i = 0; i < source.paths.size(); ++i, ++next) {
      if (split.kept[next]) kept.push_back({all[next].name, std::move(split.kept[next])});
      if (split.held_out[next]) held_out.push_back({all[next].name, std::move(split.held_out[next])});
    }
    QUENCH_CHECK_AS(ErrorCode::bad_config, !kept.empty(), "all records of {} would be held out",
                    fmt::join(source.paths, ", "));
    sources.push_back(concatenated(std::move(kept), spec.packing, source.weight));
  }
  PackingOptions whole = spec.packing;
  whole.drop_last = false;
  return {.train = std::make_shared<Dataset>(std::move(sources), spec.sampler),
          .validation = std::make_shared<Dataset>(
              std::vector<WeightedRows>{concatenated(std::move(held_out), whole, 1)}, SamplerOptions{.shuffle = false}),
          .records = split.records,
          .held_out = split.held_out_records};
}

std::string describe(const Dataset& dataset) {
  std::string text;
  for (std::size_t i = 0; i < dataset.sources().size(); ++i) {
    const PackedRows& rows = *dataset.sources()[i].rows;
    const PackedRows::Losses& losses = rows.losses();
    const double percent = 100 * dataset.sampler().mixture().share(i),
                 tokens = static_cast<double>(rows.source().size());
    text += rows.source().describe();
    for (const SourcePart& part : dataset.sources()[i].parts)
      text += fmt::format("\n  {}: {} tokens, {:.2f}% of the samples", part.name, part.tokens,
                          percent * static_cast<double>(part.tokens) / tokens);
    text += fmt::format("\n  source {}: {} tokens, {} rows of {}, {:.2f}% of the samples", i, rows.source().size(),
                        rows.size(), rows.seq_len(), percent);
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
