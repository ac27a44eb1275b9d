#include "data/text/tokenize.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <future>
#include <optional>

#include "core/system/automatic_choice.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/utf8.h"
#include "data/files/text_input.h"
#include "data/formats/content_hash.h"
#include "data/formats/shard_writer.h"
#include "data/formats/token_stream.h"
#include "data/text/data_files.h"
#include "data/text/record_kind.h"
#include "data/text/special_text.h"
#include "data/text/text_format.h"
#include "data/text/tokenize_checkpoint.h"
#include "data/tokenizer/tokenizer_kind.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSummary = "dataset.json", kValidationShard = "val.bin", kTokenizerFolder = "tokenizer/";

// XXH3-64 of the first part, seed 0.
std::uint64_t content_hash(const Document& document) {
  std::uint64_t hash = 0;
  for (const DocumentPiece& piece : document.pieces) {
    hash = XXH3_64bits_withSeed(piece.text.data(), piece.text.size(), hash);
    hash = XXH3_64bits_withSeed(piece.ids.data(), piece.ids.size() * sizeof(std::int32_t), hash);
  }
  return hash;
}

struct DocumentBatch {
  std::vector<Document> documents;
  std::vector<bool> held_out;  // one flag per document
  std::uint64_t consumed = 0;  // input bytes so far
};

// The answers of a pair.
std::uint64_t documents_together(const ReaderOptions& reader) {
  return reader.answers == AnswerRecords::pairs ? 2 : 1;
}

// Documents of all inputs, in batches.
class Corpus {
 public:
  Corpus(std::vector<fs::path> paths, const TokenizeOptions& options) : paths_(std::move(paths)), options_(options) {
    for (const fs::path& path : paths_) sizes_.push_back(stored_size(path));
    for (const std::uint64_t size : sizes_) total_ += size;
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    options.validation_fraction <= 0 || options.validation_split != ValidationSplit::tail ||
                        std::find(paths_.begin(), paths_.end(), fs::path(kStandardInput)) == paths_.end(),
                    "the length of standard input is not known, so its last part cannot be held out; hold out by hash");
  }

  void open() {  // before next()
    open_next();
    QUENCH_CHECK_AS(ErrorCode::corrupt, reader_ != nullptr, "{}: no record that can be used{}", paths_[0].string(),
                    paths_.size() > 1 ? fmt::format(", nor in the {} other files", paths_.size() - 1) : "");
  }

  [[nodiscard]] std::uint64_t total_bytes() const { return total_; }
  [[nodiscard]] const std::vector<std::uint64_t>& sizes() const { return sizes_; }
  [[nodiscard]] const std::vector<fs::path>& paths() const { return paths_; }
  [[nodiscard]] bool has_targets() const { return has_targets_; }
  [[nodiscard]] const ReadReport& report() const { return report_; }

  DocumentBatch next() {  // empty at the end
    DocumentBatch batch;
    std::uint64_t bytes = 0;
    while (reader_ && bytes < options_.batch_bytes) {
      const std::uint64_t start = done_ + reader_->consumed();
      Document document;
      if (!reader_->next(document)) {
        report_.add(reader_->report());
        done_ += sizes_[file_++];
        reader_.reset();
        open_next();
        continue;
      }
      for (const DocumentPiece& piece : document.pieces) bytes += piece.text.size() + 4 * piece.ids.size();
      if (document.begins && begun_++ % documents_together(options_.reader) == 0)
        held_out_ = is_held_out(document, start);
      batch.held_out.push_back(held_out_);
      batch.documents.push_back(std::move(document));
    }
    batch.consumed = reader_ ? done_ + reader_->consumed() : total_;
    return batch;
  }

 private:
  void open_next() {
    for (; file_ < paths_.size(); done_ += sizes_[file_++]) {
      reader_ = open_document_reader(paths_[file_], options_.reader);
      if (!reader_->is_empty()) break;
      reader_.reset();
    }
    if (!reader_) return;
    // Target masks as for the first file; a later file that needs one requires it.
    if (!first_) has_targets_ = reader_->has_targets();
    first_ = first_.value_or(file_);
    QUENCH_CHECK_AS(ErrorCode::bad_config, has_targets_ || !reader_->has_targets(),
                    "{} holds chats or token records, {} plain text: tokenize them separately", paths_[file_].string(),
                    paths_[*first_].string());
  }

  [[nodiscard]] bool is_held_out(const Document& document, std::uint64_t start) const {
    if (options_.validation_fraction <= 0) return false;
    if (options_.validation_split == ValidationSplit::hash)
      return std::ldexp(static_cast<double>(content_hash(document)), -64) < options_.validation_fraction;
    return static_cast<double>(start) >= (1 - options_.validation_fraction) * static_cast<double>(total_);
  }

  std::vector<fs::path> paths_;
  const TokenizeOptions& options_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t total_ = 0;
  std::size_t file_ = 0;
  std::uint64_t done_ = 0;  // bytes of earlier files
  std::unique_ptr<DocumentReader> reader_;
  std::uint64_t begun_ = 0;  // documents
  bool held_out_ = false;
  bool has_targets_ = false;
  std::optional<std::size_t> first_;  // file with records or text
  ReadReport report_;
};

class ShardSet {
 public:
  // Consecutive documents, `together` in number, are in one shard.
  ShardSet(fs::path folder, ShardOptions shard, std::uint64_t max_tokens, std::uint64_t together, bool numbered)
      : folder_(std::move(folder)),
        shard_(std::move(shard)),
        max_tokens_(max_tokens),
        together_(together),
        numbered_(numbered) {}

  void append(const Document& document, const EncodedDocument& encoded) {
    const bool full = writer_ && writer_->token_count() + encoded.ids.size() > max_tokens_;
    if (full && document.begins && numbered_ && writer_->document_count() % together_ == 0) close();
    if (encoded.ids.empty() && !writer_) return;
    if (!writer_) {
      shards_.push_back(
          {numbered_ ? fmt::format("train-{:05}.bin", shards_.size()) : std::string(kValidationShard), 0, 0});
      writer_.emplace(folder_ / shards_.back().file, shard_);
    }
    writer_->append(encoded.ids, encoded.targets);
    if (document.ends) writer_->end_document();
  }

  std::vector<TokenizedShard> finish() {
    close();
    return std::move(shards_);
  }

 private:
  void close() {
    if (!writer_) return;
    writer_->finish();
    shards_.back().tokens = writer_->token_count();
    shards_.back().documents = writer_->document_count();
    writer_.reset();
  }

  fs::path folder_;
  ShardOptions shard_;
  std::uint64_t max_tokens_, together_;
  bool numbered_;
  std::optional<ShardWriter> writer_;
  std::vector<TokenizedShard> shards_;
};

Json describe_shards(const std::vector<TokenizedShard>& shards) {
  std::uint64_t tokens = 0, documents = 0;
  Json list = Json::array();
  for (const TokenizedShard& shard : shards) {
    tokens += shard.tokens;
    documents += shard.documents;
    list.push_back(Json::Object{{"file", shard.file}, {"tokens", shard.tokens}, {"documents", shard.documents}});
  }
  return Json::Object{{"tokens", tokens}, {"documents", documents}, {"shards", std::move(list)}};
}

Json describe_dataset(const Tokenizer& tokenizer, const DocumentEncoder& encoder, const Corpus& corpus,
                      const TokenizeOptions& options, const TokenizeResult& result) {
  Json inputs = Json::array();
  for (std::size_t i = 0; i < corpus.paths().size(); ++i)
    inputs.push_back(Json::Object{{"file", replace_invalid_utf8(corpus.paths()[i].filename().string())},
                                  {"bytes", corpus.sizes()[i]}});
  Json settings = describe_options(options.reader, options.encoder, corpus.paths());
  settings.set("validation_fraction", options.validation_fraction);
  settings.set("validation_split", enum_name(options.validation_split));
  settings.set("max_shard_tokens", options.max_shard_tokens);
  return Json::Object{{"tokenizer", Json::Object{{"fingerprint", fingerprint_text(tokenizer)},
                                                 {"vocab_size", tokenizer.vocab_size()},
                                                 {"eos_id", encoder.eos_id() ? Json(*encoder.eos_id()) : Json()}}},
                      {"train", describe_shards(result.train)},
                      {"validation", describe_shards(result.validation)},
                      {"inputs", std::move(inputs)},
                      {"empty_documents", result.report.empty},
                      {"bad_records", result.report.bad_records},
                      {"warnings", Json::Array(result.warnings.begin(), result.warnings.end())},
                      {"options", std::move(settings)}};
}

bool is_train_shard(std::string_view name) {
  constexpr std::string_view kFront = "train-", kBack = ".bin";
  if (!name.starts_with(kFront) || !name.ends_with(kBack) || name.size() <= kFront.size() + kBack.size()) return false;
  name = name.substr(kFront.size(), name.size() - kFront.size() - kBack.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_dataset_entry(std::string_view entry) {
  if (entry.starts_with(kTokenizerFolder)) {
    const std::string_view file = entry.substr(kTokenizerFolder.size());
    return file.empty() || is_tokenizer_file(file);
  }
  return entry == kSummary || entry == kValidationShard || is_train_shard(entry);
}

void check_options(const TokenizeOptions& options) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.validation_fraction >= 0 && options.validation_fraction < 1,
                  "the held-out fraction is {}, expected at least 0 and less than 1", options.validation_fraction);
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.max_shard_tokens > 0, "--max-shard-tokens is 0; expected 1 or more");
  QUENCH_CHECK(options.batch_bytes > 0, "batches of 0 bytes");
  const fs::path& output = options.output;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !output.empty(), "no output folder");
  if (!fs::exists(output)) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, fs::is_directory(output), "{} is not a folder", output.string());
  if (fs::is_empty(output)) return;
  const std::vector<std::string> foreign = foreign_entries(output, is_dataset_entry);
  QUENCH_CHECK_AS(ErrorCode::bad_config, foreign.empty(),
                  "{} holds other files and is not replaced: {}; choose a new folder", output.string(),
                  list_names(foreign));
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.overwrite,
                  "{} holds token shards already; choose another folder or ask to overwrite it", output.string());
}

std::unique_ptr<TokenizeCheckpoint> open_journal(const fs::path& target, const Tokenizer& tokenizer,
                                                 const TokenizeOptions& options, std::span<const fs::path> inputs) {
  Hash128 identity;
  identity.add(fingerprint_text(tokenizer));
  identity.add(describe_options(options.reader, options.encoder, inputs).dump());
  identity.add(std::to_string(options.batch_bytes));
  return std::make_unique<TokenizeCheckpoint>(journal_of(target), identity.text());
}

// Version of the mask and flag rules: a change invalidates cached tokens, except those of text formats.
int chat_rules(const ReaderOptions& reader, std::span<const fs::path> inputs) {
  const bool plain = std::ranges::all_of(inputs, [&](const fs::path& path) {
    const TextFormat* format = reader.format != nullptr ? reader.format : text_format_of(path);
    return format != nullptr && format->open_records == nullptr;
  });
  return (plain ? 2 : 7) + (reader.answers == AnswerRecords::none ? 0 : 2);
}

// "12.3 of 45.6 MB", or without the total.
std::string part_of_input(std::uint64_t bytes, std::uint64_t total) {
  const auto megabytes = [](std::uint64_t value) { return static_cast<double>(value) / 1e6; };
  if (total == 0) return fmt::format("{:.1f} MB", megabytes(bytes));
  return fmt::format("{:.1f} of {:.1f} MB", megabytes(bytes), megabytes(total));
}

std::vector<EncodedDocument> encode_once(const DocumentBatch& batch, const DocumentEncoder& encoder,
                                         TokenizeCheckpoint* journal) {
  if (journal == nullptr) return encoder.encode(batch.documents);
  if (auto stored = journal->take(batch.documents)) return std::move(*stored);
  std::vector<EncodedDocument> encoded = encoder.encode(batch.documents);
  journal->append(batch.documents, encoded, batch.consumed);
  return encoded;
}

[[noreturn]] void end_early(int reason, const TokenizeProgress& progress, const TokenizeCheckpoint* journal) {
  const std::uint64_t kept = journal != nullptr ? journal->input_bytes() : 0;
  throw TokenizationStopped(reason, fmt::format("tokenization stopped after {} of text; the same command {}",
                                                part_of_input(kept > 0 ? kept : progress.bytes, progress.total_bytes),
                                                kept > 0 ? "resumes there" : "starts from the beginning"));
}

}  // namespace

fs::path journal_of(const fs::path& output) {
  return fs::path(resolved_path(output).string() + ".journal");
}

Json describe_options(const ReaderOptions& reader, const EncoderOptions& encoder, std::span<const fs::path> inputs) {
  Json columns = Json::object();
  for (const auto& [target, column] : reader.columns) columns.set(target, column);
  return Json::Object{{"format", name_or_auto(reader.format)},
                      {"split", enum_name(reader.split)},
                      {"marker", reader.marker},
                      {"record", name_or_auto(reader.record)},
                      {"field", reader.field},
                      {"columns", std::move(columns)},
                      {"preference", enum_name(reader.answers)},
                      {"chat_template", reader.chat_renderer ? std::string_view(reader.chat_renderer->identity())
                                                             : name_or_auto(reader.chat_template)},
                      {"train_on", enum_name(reader.train_on)},
                      {"chat_rules", chat_rules(reader, inputs)},
                      {"on_bad_record", enum_name(reader.on_bad_record)},
                      {"max_document_bytes", reader.max_document_bytes},
                      {"eos", enum_name(encoder.eos)},
                      {"add_special_tokens", encoder.add_special_tokens},
                      {"special_text", enum_name(reader.special_text)}};
}

TokenizeResult tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  check_options(options);
  TokenizeOptions checked = options;
  checked.reader.vocab_size = tokenizer.vocab_size();
  resolve_chats(checked.reader, tokenizer);
  checked.reader.notes = std::make_shared<RecordNotes>();
  TokenizeProgress progress;
  std::unique_ptr<TokenizeCheckpoint> journal;
  // Reading on a thread ends at a stop between two blocks: a record, and a run of skipped ones, may be of any length.
  std::atomic<int> stopped = 0;
  checked.reader.on_block = [&stopped] {
    if (stopped != 0) throw TokenizationStopped(stopped, "");
  };
  const auto wait_for = [&](auto&& reading) {
    constexpr std::chrono::milliseconds kPoll{100};
    while (options.stop && reading.wait_for(kPoll) == std::future_status::timeout) stopped = options.stop();
    try {
      return reading.get();
    } catch (const TokenizationStopped& stop) {
      end_early(stop.reason(), progress, journal.get());
    }
  };
  const DocumentEncoder encoder(tokenizer, options.encoder);
  Corpus corpus(expand_data_files(options.inputs), checked);
  progress.total_bytes = corpus.total_bytes();
  wait_for(std::async(std::launch::async, [&] { corpus.open(); }));
  const fs::path target = resolved_path(options.output);
  remove_stale_temporaries(target.parent_path(), target.filename().string());
  StagingFolder staging(target);
  const ShardOptions shard{.vocab_size = static_cast<std::uint64_t>(tokenizer.vocab_size()),
                           .eos_id = encoder.eos_id(),
                           .tokenizer_fingerprint = fingerprint_text(tokenizer),
                           .target_mask = corpus.has_targets()};
  const std::uint64_t together = documents_together(checked.reader);
  ShardSet train(staging.path(), shard, options.max_shard_tokens, together, true);
  ShardSet validation(staging.path(), shard, options.max_shard_tokens, together, false);
  if (options.journal) journal = open_journal(target, tokenizer, checked, corpus.paths());
  if (journal && journal->input_bytes() > 0)
    QUENCH_LOG_INFO("tokenization resumes after {} of text",
                    part_of_input(journal->input_bytes(), progress.total_bytes));
  std::optional<SpecialTextCounter> special_text;
  if (checked.reader.special_text == SpecialText::automatic) special_text.emplace(tokenizer);
  const auto read_batch = [&] { return std::async(std::launch::async, [&] { return corpus.next(); }); };
  DocumentBatch batch = wait_for(read_batch());
  const std::vector<std::uint8_t> lost_bytes = tokenizer.bytes_without_token();
  while (!batch.documents.empty()) {
    if (const int reason = options.stop ? options.stop() : 0; reason != 0) end_early(reason, progress, journal.get());
    // Reading overlaps encoding.
    std::future<DocumentBatch> following = read_batch();
    const std::vector<EncodedDocument> encoded = encode_once(batch, encoder, journal.get());
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      (batch.held_out[i] ? validation : train).append(batch.documents[i], encoded[i]);
      progress.tokens += encoded[i].ids.size();
      progress.documents += batch.documents[i].ends ? 1 : 0;
    }
    if (special_text) special_text->count(batch.documents);
    note_lost_bytes(batch.documents, lost_bytes, *checked.reader.notes);
    progress.bytes = batch.consumed;
    if (options.progress) options.progress(progress);
    batch = wait_for(following);
  }

  TokenizeResult result{train.finish(), validation.finish(), corpus.report(), checked.reader.notes->warnings()};
  if (special_text && !special_text->found().empty()) result.warnings.push_back(special_text->warning());
  QUENCH_CHECK(!result.train.empty() || !result.validation.empty(),
               "no document in {} input files: {} were blank and {} records were skipped", corpus.paths().size(),
               result.report.empty, result.report.bad_records);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, !result.train.empty() && (options.validation_fraction <= 0 || !result.validation.empty()),
      "holding out {} of the input leaves no document to {}: there are {} documents; split the text into more "
      "documents, for example at blank lines, or give the validation data as a file of its own",
      options.validation_fraction, result.train.empty() ? "train on" : "validate on", progress.documents);
  tokenizer.save(staging.path() / kTokenizerFolder);
  write_file_atomically(staging.path() / kSummary,
                        describe_dataset(tokenizer, encoder, corpus, checked, result).dump(2) + "\n");
  replace_folder(staging, target, is_dataset_entry);
  if (journal) journal->remove();
  return result;
}

}  // namespace quench
