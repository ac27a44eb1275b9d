#include "data/text/tokenize_checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>

#include <atomic>
#include <map>

#include "data/text/text_cache.h"
#include "tests/core/system/file_size_limit.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

// The built-in tokenizer of bytes; counts the texts that it encodes. One thread calls encode() for all tests here.
class CountingTokenizer : public Tokenizer {
 public:
  explicit CountingTokenizer(std::int32_t first_id = 0) : first_id_(first_id) {
    bos_id_ = base_->bos_id();
    eos_id_ = base_->eos_id();
  }
  using Tokenizer::encode;
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const override {
    ++encoded;
    const std::size_t begin = ids.size();
    base_->encode(text, options, ids);
    if (text.size() > 1)
      for (std::size_t i = begin; i < ids.size(); ++i) ids[i] += first_id_;
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return base_->vocab_size() + first_id_; }
  [[nodiscard]] std::string token_text(std::int32_t id) const override { return base_->token_text(id); }
  [[nodiscard]] std::optional<std::int32_t> find_token(std::string_view bytes) const override {
    return base_->find_token(bytes);
  }
  [[nodiscard]] bool is_special(std::int32_t id) const override { return base_->is_special(id); }
  [[nodiscard]] std::uint64_t fingerprint() const override { return base_->fingerprint(); }
  void save(const fs::path& folder) const override { base_->save(folder); }

  mutable std::atomic<int> encoded{0};

 protected:
  bool append_text(std::int32_t, bool, std::string&) const override { return false; }

 private:
  std::unique_ptr<Tokenizer> base_ = load_tokenizer("bytes");
  std::int32_t first_id_;
};

constexpr int kDocuments = 100;

std::string documents_from(int first) {
  std::string text;
  for (int i = 0; i < kDocuments; ++i)
    text += "{\"text\":\"document " + std::to_string(first + i) + std::string(static_cast<std::size_t>(i % 50), 'x') +
            "\"}\n";
  return text;
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) found[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  return found;
}

class TokenizeCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { write_file(folder_ / "a.jsonl", documents_from(0)); }

  TokenizeOptions options(const std::string& output) const {
    return {.inputs = {(folder_ / "a.jsonl").string()},
            .output = folder_ / output,
            .validation_fraction = 0.2,
            .max_shard_tokens = 600,
            .batch_bytes = 300,
            .journal = true};
  }
  // Tokenizes until `batches` batches are done; gives the message.
  std::string stop_after(int batches, TokenizeOptions options, const Tokenizer& tokenizer) const {
    int done = 0;
    options.progress = [&](const TokenizeProgress&) { ++done; };
    options.stop = [&] { return done == batches ? 15 : 0; };
    try {
      (void)tokenize_files(tokenizer, options);
    } catch (const TokenizationStopped& stopped) {
      EXPECT_EQ(stopped.reason(), 15);
      EXPECT_EQ(done, batches);
      return stopped.what();
    }
    ADD_FAILURE() << "was not stopped";
    return {};
  }
  // Output of an uninterrupted tokenization.
  std::map<std::string, std::string> whole(const Tokenizer& tokenizer) const {
    TokenizeOptions plain = options("whole");
    plain.overwrite = true;
    plain.journal = false;
    (void)tokenize_files(tokenizer, plain);
    return contents(folder_ / "whole");
  }
  // Completes "out" and compares; gives the number of texts that were encoded for it.
  int complete(const TokenizeOptions& options, std::int32_t first_id = 0) const {
    const CountingTokenizer tokenizer(first_id);
    (void)tokenize_files(tokenizer, options);
    const int encoded = tokenizer.encoded;
    EXPECT_EQ(contents(options.output), whole(tokenizer));
    return encoded - kFraming;
  }
  [[nodiscard]] fs::path journal() const { return folder_ / "out.journal"; }

  static constexpr int kFraming = 2;  // texts that a DocumentEncoder encodes to see what stands around a text
  TempDir folder_;
  CountingTokenizer tokenizer_;
};

TEST_F(TokenizeCheckpointTest, AStoppedTokenizationGoesOnWithTheSameResult) {
  for (const std::int32_t first_id : {0, 70000}) {  // ids of two bytes, and of four
    const CountingTokenizer tokenizer(first_id);
    const std::string message = stop_after(4, options("out"), tokenizer);
    EXPECT_THAT(message, ::testing::HasSubstr("the same command resumes there"));
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    EXPECT_TRUE(fs::exists(journal()));
    const int before = tokenizer.encoded - kFraming;
    ASSERT_GT(before, 20);
    // Stopped again among the stored batches, then past them.
    const CountingTokenizer again(first_id);
    (void)stop_after(2, options("out"), again);
    EXPECT_EQ(again.encoded, kFraming);
    (void)stop_after(6, options("out"), again);
    const int further = again.encoded - 2 * kFraming;
    ASSERT_GT(further, 0);
    EXPECT_EQ(before + further + complete(options("out"), first_id), kDocuments);
    EXPECT_FALSE(fs::exists(journal()));
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(TokenizeCheckpointTest, NothingIsLeftWhereNothingWasEncoded) {
  EXPECT_THAT(stop_after(0, options("out"), tokenizer_), ::testing::HasSubstr("starts from the beginning"));
  EXPECT_FALSE(fs::exists(journal()));
  EXPECT_EQ(complete(options("out")), kDocuments);
}

TEST_F(TokenizeCheckpointTest, WithoutAJournalItBeginsAgain) {
  TokenizeOptions plain = options("out");
  plain.journal = false;
  EXPECT_THAT(stop_after(3, plain, tokenizer_), ::testing::HasSubstr("starts from the beginning"));
  EXPECT_EQ(complete(plain), kDocuments);
}

// A chat's targets are stored with its ids.
TEST_F(TokenizeCheckpointTest, KeepsTargets) {
  std::string text;
  for (int i = 0; i < 30; ++i)
    text += R"({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]})"
            "\n";
  write_file(folder_ / "a.jsonl", text);
  TokenizeOptions tokens = options("out");
  tokens.batch_bytes = 60;
  (void)stop_after(3, tokens, tokenizer_);
  EXPECT_EQ(complete(tokens), 0);
}

TEST_F(TokenizeCheckpointTest, ATornTailIsCutOff) {
  (void)stop_after(4, options("out"), tokenizer_);
  const std::string all = read_file(journal());
  int most = 0;
  for (std::size_t size = 0; size < all.size(); size += 97) {
    write_file(journal(), all.substr(0, size));
    (void)stop_after(5, options("out"), tokenizer_);  // appended after the cut
    const int rest = complete(options("out"));
    EXPECT_GT(rest, 0);
    EXPECT_LT(rest, kDocuments);
    most = std::max(most, rest);
    fs::remove_all(folder_ / "out");
  }
  EXPECT_GT(most, 0);
}

TEST_F(TokenizeCheckpointTest, DamagedBatchesAreEncodedAgain) {
  (void)stop_after(4, options("out"), tokenizer_);
  const std::string all = read_file(journal());
  for (std::size_t at = 8; at < all.size(); at += 61) {
    std::string damaged = all;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
    write_file(journal(), damaged);
    EXPECT_GT(complete(options("out")), kDocuments - tokenizer_.encoded) << "byte " << at;
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(TokenizeCheckpointTest, AnotherIdentityBeginsAnew) {
  (void)stop_after(4, options("out"), tokenizer_);
  TokenizeOptions other = options("out");
  other.encoder.eos = EosPolicy::none;
  (void)tokenize_files(tokenizer_, other);
  TokenizeOptions plain = other;
  plain.output = folder_ / "plain";
  plain.journal = false;
  (void)tokenize_files(tokenizer_, plain);
  EXPECT_EQ(contents(folder_ / "out"), contents(folder_ / "plain"));
  EXPECT_FALSE(fs::exists(journal()));
}

// Sizes are as before: only the text's hash tells.
TEST_F(TokenizeCheckpointTest, AChangedInputIsEncodedAgainFromTheChangeOn) {
  (void)stop_after(4, options("out"), tokenizer_);
  std::string text = documents_from(0);
  text.replace(text.find("document 40"), 11, "DOCUMENT 40");
  write_file(folder_ / "a.jsonl", text);
  const int encoded = complete(options("out"));
  EXPECT_GT(encoded, kDocuments - 41);
  EXPECT_LT(encoded, kDocuments);
}

// The text is the same: labels of answers alone have changed.
TEST_F(TokenizeCheckpointTest, ChangedLabelsAreTakenFromTheChangeOn) {
  const auto records = [](bool label) {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text +=
          fmt::format(R"({{"prompt": "question {}", "completion": "answer", "label": {}}})", i, (i % 2 == 0) == label) +
          "\n";
    return text;
  };
  TokenizeOptions labelled = options("out");
  labelled.reader.answers = AnswerRecords::labels;
  write_file(folder_ / "a.jsonl", records(true));
  (void)stop_after(4, labelled, tokenizer_);
  write_file(folder_ / "a.jsonl", records(false));
  (void)tokenize_files(tokenizer_, labelled);
  TokenizeOptions fresh = labelled;
  fresh.output = folder_ / "fresh";
  fresh.journal = false;
  (void)tokenize_files(tokenizer_, fresh);
  EXPECT_EQ(contents(folder_ / "out"), contents(folder_ / "fresh"));
}

TEST_F(TokenizeCheckpointTest, AFileOfSomeoneElseStaysAsItIs) {
  write_file(journal(), "my diary");
  EXPECT_THAT(stop_after(4, options("out"), tokenizer_), ::testing::HasSubstr("starts from the beginning"));
  EXPECT_EQ(complete(options("out")), kDocuments);
  EXPECT_EQ(read_file(journal()), "my diary");
}

TEST_F(TokenizeCheckpointTest, OneThatAnotherProcessWritesStaysAsItIs) {
  (void)stop_after(4, options("out"), tokenizer_);
  const std::string stored = read_file(journal());
  const int held = ::open(journal().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_EQ(complete(options("out")), kDocuments);
  ::close(held);
  EXPECT_EQ(read_file(journal()), stored);
}

TEST_F(TokenizeCheckpointTest, AFullDiskCostsTheJournalOnly) {
  whole(tokenizer_);
  TokenizeOptions limited = options("out");
  {
    const testing::FileSizeLimit limit(6500);  // shards and the tokenizer's files are smaller
    (void)tokenize_files(tokenizer_, limited);
    EXPECT_FALSE(fs::exists(journal()));
    limited.output = folder_ / "stopped";
    EXPECT_THAT(stop_after(10, limited, tokenizer_), ::testing::HasSubstr("starts from the beginning"));
  }
  EXPECT_EQ(contents(folder_ / "out"), contents(folder_ / "whole"));
}

class TextCacheJournal : public TokenizeCheckpointTest {
 protected:
  std::vector<fs::path> shards(const Tokenizer& tokenizer, int stop_after_batches = -1) const {
    int done = 0, watches = 0;
    TextCacheOptions cache{.folder = folder_ / "cache", .batch_bytes = 300};
    cache.progress = [&](const TokenizeProgress&) { ++done; };
    cache.watch_stop = [&] {
      ++watches;
      return [&] { return done == stop_after_batches ? 15 : 0; };
    };
    auto found = tokenize_cached({(folder_ / "a.jsonl").string()}, tokenizer, cache);
    EXPECT_EQ(watches, done > 0 ? 1 : 0);
    return found;
  }
  [[nodiscard]] std::vector<fs::path> journals() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.path().extension() == ".journal") found.push_back(entry.path());
    return found;
  }
};

TEST_F(TextCacheJournal, AStoppedEntryGoesOn) {
  EXPECT_THROW((void)shards(tokenizer_, 4), TokenizationStopped);
  ASSERT_EQ(journals().size(), 1u);
  // Other text: its own journal, next to this one.
  write_file(folder_ / "a.jsonl", documents_from(1000));
  EXPECT_THROW((void)shards(tokenizer_, 1), TokenizationStopped);
  EXPECT_EQ(journals().size(), 2u);
  const CountingTokenizer other;
  (void)shards(other);
  EXPECT_LT(other.encoded, kDocuments);
  EXPECT_EQ(journals().size(), 1u);

  write_file(folder_ / "a.jsonl", documents_from(0));
  const CountingTokenizer again;
  const auto entry = shards(again).at(0).parent_path();
  EXPECT_LT(again.encoded - kFraming, kDocuments - 20);
  EXPECT_TRUE(journals().empty());
  const auto resumed = contents(entry);
  fs::remove_all(entry);
  (void)shards(again);
  EXPECT_EQ(contents(entry), resumed);
  // A process killed between the last two steps.
  write_file(entry.string() + ".journal", "QNCHJRN2");
  (void)shards(again);
  EXPECT_TRUE(journals().empty());
}

TEST_F(TextCacheJournal, ADamagedEntryIsRecomputed) {
  const auto entry = shards(tokenizer_).at(0).parent_path();
  const auto whole = contents(entry);
  const auto expect_recomputed = [&] {
    const CountingTokenizer again;
    (void)shards(again);
    EXPECT_GT(again.encoded, 0);
    EXPECT_EQ(contents(entry), whole);
  };
  write_file(entry / "dataset.json", "{");
  expect_recomputed();
  fs::remove(entry / "train-00000.bin");
  expect_recomputed();
  fs::resize_file(entry / "train-00000.bin", 100);
  expect_recomputed();
}

// The last batch is done: the entry is completed, and the caller hears of the stop.
TEST_F(TextCacheJournal, AStopAtTheEndIsNotLost) {
  int batches = 0;
  TextCacheOptions count{.folder = folder_ / "counted", .batch_bytes = 300};
  count.progress = [&](const TokenizeProgress&) { ++batches; };
  (void)tokenize_cached({(folder_ / "a.jsonl").string()}, tokenizer_, count);
  EXPECT_THROW((void)shards(tokenizer_, batches), TokenizationStopped);
  EXPECT_TRUE(journals().empty());
  const CountingTokenizer again;
  (void)shards(again);
  EXPECT_EQ(again.encoded, 0);
}

}  // namespace
}  // namespace quench
