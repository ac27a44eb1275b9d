#include "data/text/tokenize.h"

#include <omp.h>

#include <map>
#include <set>

#include "data/formats/shard_format.h"
#include "data/formats/token_stream.h"
#include "data/text/text_format.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;
using Ids = std::vector<std::int32_t>;

std::string jsonl(int documents) {
  std::string text;
  for (int i = 0; i < documents; ++i)
    text += Json(Json::Object{
                     {"text", "document " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 50), 'x')}})
                .dump() +
            "\n";
  return text;
}

// The documents of shards, decoded, without begin and end tokens.
std::vector<std::string> decode(const Tokenizer& tokenizer, const std::filesystem::path& folder,
                                const std::vector<TokenizedShard>& shards) {
  std::vector<std::string> documents;
  for (const TokenizedShard& shard : shards) {
    verify_shard(BinaryFile(folder / shard.file));
    const auto source = open_token_file(folder / shard.file);
    EXPECT_EQ(source->size(), shard.tokens);
    const Ids ids = testing::read_all_tokens(*source);
    auto starts = testing::all_document_starts(*source);
    EXPECT_EQ(starts.size(), shard.documents);
    starts.push_back(ids.size());
    for (std::size_t d = 0; d + 1 < starts.size(); ++d)
      documents.push_back(tokenizer.decode(std::span(ids).subspan(static_cast<std::size_t>(starts[d]),
                                                                  static_cast<std::size_t>(starts[d + 1] - starts[d])),
                                           {.skip_special = true}));
  }
  return documents;
}

// Rules of chats do not concern text formats, whose cached tokens stay valid.
TEST(Tokenize, ChatRulesOfTextFormats) {
  TempDir folder;
  const std::filesystem::path text = folder / "a.txt", records = folder / "b.jsonl", unnamed = folder / "c";
  for (const auto& path : {text, records, unnamed}) write_file(path, "{\"text\": \"a\"}\n");
  const auto rules = [](const char* format, const std::vector<std::filesystem::path>& inputs) {
    ReaderOptions reader;
    if (format != nullptr) reader.format = text_formats().find(format);
    return describe_options(reader, {}, inputs).at("chat_rules").as_int();
  };
  EXPECT_EQ(rules(nullptr, {text}), 2);
  EXPECT_EQ(rules("text", {text, records, unnamed}), 2);
  EXPECT_GT(rules("jsonl", {text}), 2);
  EXPECT_GT(rules(nullptr, {text, records}), 2);
  EXPECT_GT(rules(nullptr, {unnamed}), 2);
}

// As SmolLM2's vocabulary, which lacks a control character and bytes that UTF-8 never has.
TEST(Tokenize, LostBytesAreCountedWhereATextHasThem) {
  TempDir folder;
  Json root = Json::parse_file(testing::golden_dir() / "tokenizer" / "tokenizer.json");
  Json model = root.at("model"), vocabulary = Json::object();
  for (const auto& [text, id] : model.at("vocab").as_object())
    vocabulary.set(text == "\u0104" ? "\u0104\u0104" : text == "\u00FF" ? "\u00FF\u00FF" : text, id);
  model.set("vocab", vocabulary);
  root.set("model", model);
  write_file(folder / "tokenizer.json", root.dump());
  testing::CapturedLog log;
  const auto tokenizer = load_tokenizer(folder / "tokenizer.json");
  EXPECT_EQ(tokenizer->bytes_without_token(), (std::vector<std::uint8_t>{0x04, 0xFF}));
  write_file(folder / "a.txt", "plain \u00e9");
  EXPECT_TRUE(
      tokenize_files(*tokenizer, {.inputs = {(folder / "a.txt").string()}, .output = folder / "a"}).warnings.empty());
  write_file(folder / "b.txt", "a\x04 b\x04");
  const auto warnings =
      tokenize_files(*tokenizer, {.inputs = {(folder / "b.txt").string()}, .output = folder / "b"}).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings.front(), ::testing::HasSubstr("which are lost: \"0x04\" (2 occurrences)"));
  EXPECT_EQ(log.text(), "");
}

TEST(Tokenize, WritesShardsTokenizerAndSummary) {
  TempDir folder;
  write_file(folder / "a.jsonl", jsonl(300));
  write_file(folder / "b.jsonl", "{\"text\":\"last\"}\n");
  const auto tokenizer = load_tokenizer("bytes");
  std::vector<TokenizeProgress> progress;
  const auto result =
      tokenize_files(*tokenizer, {.inputs = {(folder / "*.jsonl").string()},
                                  .output = folder / "out",
                                  .validation_fraction = 0.1,
                                  .max_shard_tokens = 4000,
                                  .batch_bytes = 1000,
                                  .progress = [&](const TokenizeProgress& p) { progress.push_back(p); }});
  ASSERT_GT(result.train.size(), 2u);
  ASSERT_EQ(result.validation.size(), 1u);
  for (const TokenizedShard& shard : result.train) EXPECT_LE(shard.tokens, 4000u);
  auto documents = decode(*tokenizer, folder / "out", result.train);
  const auto held_out = decode(*tokenizer, folder / "out", result.validation);
  // Documents that start in the last tenth of the input's bytes; the last file is one document.
  const std::string text = jsonl(300);
  const double border = 0.9 * static_cast<double>(text.size() + std::string("{\"text\":\"last\"}\n").size());
  std::size_t expected = 1;
  for (std::size_t line = 0; line < text.size(); line = text.find('\n', line) + 1)
    expected += static_cast<double>(line) >= border ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(held_out.size()), static_cast<double>(expected), 1);
  documents.insert(documents.end(), held_out.begin(), held_out.end());
  ASSERT_EQ(documents.size(), 301u);
  for (int i = 0; i < 300; ++i)
    EXPECT_EQ(documents[static_cast<std::size_t>(i)],
              "document " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 50), 'x'));
  EXPECT_EQ(documents.back(), "last");

  const Json summary = Json::parse_file(folder / "out/dataset.json");
  EXPECT_EQ(summary.at("train").at("shards").as_array().size(), result.train.size());
  EXPECT_EQ(summary.at("train").at("documents").as_int() + summary.at("validation").at("documents").as_int(), 301);
  EXPECT_EQ(summary.at("tokenizer").at("fingerprint").as_string(), fingerprint_text(*tokenizer));
  EXPECT_EQ(summary.at("inputs").as_array().size(), 2u);
  EXPECT_EQ(load_tokenizer(folder / "out/tokenizer")->fingerprint(), tokenizer->fingerprint());
  const TokenizeProgress& last = progress.back();
  EXPECT_EQ(last.documents, 301u);
  EXPECT_EQ(last.bytes, last.total_bytes);
  EXPECT_GT(progress.size(), 5u);
  const auto stream = TokenStream::open({(folder / "out/train-*.bin").string()},
                                        {.tokenizer_fingerprint = fingerprint_text(*tokenizer)});
  EXPECT_EQ(stream->size() + result.validation[0].tokens, last.tokens);
}

TEST(Tokenize, DocumentsEndWithEos) {
  TempDir folder;
  write_file(folder / "a.txt", "one\n\ntwo\n");
  const auto tokenizer = load_tokenizer("bytes");
  (void)tokenize_files(*tokenizer, {.inputs = {(folder / "a.txt").string()},
                                    .reader = {.split = TextSplit::blank_line},
                                    .encoder = {.add_special_tokens = false},
                                    .output = folder / "out"});
  const auto source = open_token_file(folder / "out/train-00000.bin");
  EXPECT_EQ(testing::read_all_tokens(*source), (Ids{'o', 'n', 'e', 257, 't', 'w', 'o', 257}));
  EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 4}));
}

TEST(Tokenize, OutputDoesNotDependOnThreadsOrBatches) {
  TempDir folder;
  write_file(folder / "a.jsonl", jsonl(500));
  const auto tokenizer = load_tokenizer(testing::golden_dir() / "tokenizer");
  const int threads = omp_get_max_threads();
  std::string first;
  for (const auto& [count, bytes] : {std::pair{1, std::uint64_t{1} << 24}, std::pair{4, std::uint64_t{500}}}) {
    omp_set_num_threads(count);
    (void)tokenize_files(*tokenizer, {.inputs = {(folder / "a.jsonl").string()},
                                      .output = folder / "out",
                                      .overwrite = true,
                                      .validation_fraction = 0.2,
                                      .validation_split = ValidationSplit::hash,
                                      .batch_bytes = bytes});
    const std::string shards =
        testing::read_file(folder / "out/train-00000.bin") + testing::read_file(folder / "out/val.bin");
    if (first.empty()) first = shards;
    EXPECT_EQ(shards, first);
  }
  omp_set_num_threads(threads);
}

// The hash split depends on content alone: reordering the input moves no document to the other side.
TEST(Tokenize, HashSplitFollowsTheDocument) {
  TempDir folder;
  const auto tokenizer = load_tokenizer("bytes");
  const auto held_out = [&](const std::string& lines) {
    write_file(folder / "a.jsonl", lines);
    const auto result = tokenize_files(*tokenizer, {.inputs = {(folder / "a.jsonl").string()},
                                                    .output = folder / "out",
                                                    .overwrite = true,
                                                    .validation_fraction = 0.25,
                                                    .validation_split = ValidationSplit::hash});
    const auto documents = decode(*tokenizer, folder / "out", result.validation);
    return std::set<std::string>(documents.begin(), documents.end());
  };
  const std::string lines = jsonl(400);
  std::string reversed;
  for (std::size_t end = lines.size(); end > 0;) {
    const std::size_t begin = end >= 2 ? lines.rfind('\n', end - 2) + 1 : 0;
    reversed += lines.substr(begin, end - begin);
    end = begin;
  }
  const auto first = held_out(lines);
  EXPECT_NEAR(static_cast<double>(first.size()), 100, 35);
  EXPECT_EQ(held_out(reversed), first);
}

TEST(Tokenize, ALargeDocumentStaysOneDocument) {
  TempDir folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i) + "\n";
  write_file(folder / "a.txt", text);
  const auto tokenizer = load_tokenizer(testing::golden_dir() / "tokenizer");
  const auto result = tokenize_files(*tokenizer, {.inputs = {(folder / "a.txt").string()},
                                                  .reader = {.max_document_bytes = 1000},
                                                  .output = folder / "out",
                                                  .max_shard_tokens = 100,
                                                  .batch_bytes = 3000});
  ASSERT_EQ(result.train.size(), 1u);
  EXPECT_EQ(result.train[0].documents, 1u);
  Ids expected = tokenizer->encode(text);
  expected.push_back(*tokenizer->eos_id());
  EXPECT_EQ(testing::read_all_tokens(*open_token_file(folder / "out/train-00000.bin")), expected);
}

// The template need not be named, and bad records are no way around a tokenizer without one.
TEST(Tokenize, TheChatTemplateFollowsTheTokenizer) {
  TempDir folder;
  write_file(folder / "a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})"
                                 "\n");
  const auto plain = load_tokenizer("bytes");
  const auto chatml = testing::with_special_tokens(*plain, chat_templates().require("chatml").special_tokens);
  (void)tokenize_files(*chatml, {.inputs = {(folder / "a.jsonl").string()}, .output = folder / "out"});
  EXPECT_EQ(chatml->decode(testing::read_all_tokens(*open_token_file(folder / "out/train-00000.bin"))),
            "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
  EXPECT_EQ(Json::parse_file(folder / "out/dataset.json").at("options").at("chat_template").as_string(), "chatml");
  for (const BadRecord policy : {BadRecord::error, BadRecord::skip})
    expect_error(ErrorCode::bad_config, {"data.chat_template"}, [&] {
      (void)tokenize_files(
          *plain,
          {.inputs = {(folder / "a.jsonl").string()}, .reader = {.on_bad_record = policy}, .output = folder / "out2"});
    });
}

TEST(Tokenize, ChatsKeepTheirTargets) {
  TempDir folder;
  write_file(folder / "a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})"
                                 "\n");
  const auto tokenizer =
      testing::with_special_tokens(*load_tokenizer("bytes"), chat_templates().require("chatml").special_tokens);
  (void)tokenize_files(*tokenizer, {.inputs = {(folder / "a.jsonl").string()},
                                    .reader = {.chat_template = chat_template_from_string("chatml")},
                                    .output = folder / "out"});
  const auto source = open_token_file(folder / "out/train-00000.bin");
  ASSERT_TRUE(source->has_target_mask());
  const Ids ids = testing::read_all_tokens(*source);
  std::vector<std::uint8_t> mask(ids.size());
  source->read_target_mask(0, mask);
  Ids targets;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (mask[i] != 0) targets.push_back(ids[i]);
  EXPECT_EQ(targets, (Ids{'A', *tokenizer->find_token("<|im_end|>")}));
}

TEST(Tokenize, TokenRecordsPassThrough) {
  TempDir folder;
  write_file(folder / "a.jsonl", "{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n{\"input_ids\":[4,5]}\n");
  const auto tokenizer = load_tokenizer("bytes");
  (void)tokenize_files(*tokenizer, {.inputs = {(folder / "a.jsonl").string()}, .output = folder / "out"});
  const auto source = open_token_file(folder / "out/train-00000.bin");
  EXPECT_EQ(testing::read_all_tokens(*source), (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 3}));
  write_file(folder / "a.jsonl", "{\"input_ids\":[1,259]}\n");
  expect_error(ErrorCode::corrupt, {"a.jsonl:1", "259"}, [&] {
    (void)tokenize_files(*tokenizer, {.inputs = {(folder / "a.jsonl").string()}, .output = folder / "out2"});
  });
}

TEST(Tokenize, BadRecordsAreCounted) {
  TempDir folder;
  write_file(folder / "a.jsonl", "{\"text\":\"a\"}\n{bad\n{\"text\":\"b\"}\n");
  const auto tokenizer = load_tokenizer("bytes");
  TokenizeOptions options{.inputs = {(folder / "a.jsonl").string()}, .output = folder / "out"};
  expect_error(ErrorCode::corrupt, {"a.jsonl:2"}, [&] { (void)tokenize_files(*tokenizer, options); });
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  options.reader.on_bad_record = BadRecord::skip;
  const auto result = tokenize_files(*tokenizer, options);
  EXPECT_EQ(result.report.bad_records, 1u);
  EXPECT_EQ(result.train[0].documents, 2u);
  EXPECT_EQ(Json::parse_file(folder / "out/dataset.json").at("bad_records").as_int(), 1);
  // Nothing but the input and the output is left.
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"a.jsonl", "out"}));
}

// As a filter or a shuffle of parts leaves them.
TEST(Tokenize, APartWithoutRecordsIsNoFault) {
  TempDir folder;
  const auto tokenizer = load_tokenizer("bytes");
  const auto documents_of = [&](const std::vector<std::string>& files) {
    TokenizeOptions options{.output = folder / "out", .overwrite = true};
    for (const std::string& file : files) options.inputs.push_back((folder / file).string());
    const auto result = tokenize_files(*tokenizer, options);
    return decode(*tokenizer, folder / "out", result.train);
  };
  write_file(folder / "empty.csv", "text\n");
  write_file(folder / "full.csv", "text\na\n");
  write_file(folder / "empty.jsonl", "");
  write_file(folder / "blank.jsonl", "\n\n");
  write_file(folder / "empty.json", "[]");
  write_file(folder / "chat.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  for (const char* name : {"empty.csv", "empty.jsonl", "blank.jsonl", "empty.json"}) {
    EXPECT_EQ(documents_of({"full.csv", name}), std::vector<std::string>{"a"}) << name;
    EXPECT_EQ(documents_of({name, "full.csv"}), std::vector<std::string>{"a"}) << name;
    EXPECT_EQ(documents_of({name, "chat.jsonl"}), std::vector<std::string>{"ab"}) << name;
    expect_error(ErrorCode::corrupt, {name, "no record that can be used"}, [&] { (void)documents_of({name}); });
  }
  expect_error(ErrorCode::corrupt, {"empty.csv", "nor in the 1 other"}, [&] {
    (void)documents_of({"empty.csv", "empty.jsonl"});
  });
  write_file(folder / "other.jsonl", "{\"body\": \"a\"}\n");
  expect_error(ErrorCode::corrupt, {"other.jsonl:1"}, [&] { (void)documents_of({"full.csv", "other.jsonl"}); });
}

TEST(Tokenize, BadRequestsAreRefused) {
  TempDir folder;
  write_file(folder / "a.txt", "only one document");
  write_file(folder / "blank.txt", "\n");
  write_file(folder / "chat.jsonl", "{\"input_ids\":[1]}\n");
  const auto tokenizer = load_tokenizer("bytes");
  const TokenizeOptions good{.inputs = {(folder / "a.txt").string()}, .output = folder / "out"};
  const auto refuses = [&](ErrorCode code, const std::string& part, auto change) {
    TokenizeOptions options = good;
    change(options);
    expect_error(code, {part}, [&] { (void)tokenize_files(*tokenizer, options); });
    EXPECT_FALSE(std::filesystem::exists(folder / "out")) << part;
  };
  refuses(ErrorCode::bad_config, "fraction is 1", [](auto& o) { o.validation_fraction = 1; });
  refuses(ErrorCode::bad_config, "fraction is -0.1", [](auto& o) { o.validation_fraction = -0.1; });
  refuses(ErrorCode::bad_config, "no document to validate on", [](auto& o) { o.validation_fraction = 0.5; });
  refuses(ErrorCode::bad_config, "no output folder", [](auto& o) { o.output = ""; });
  refuses(ErrorCode::bad_config, "holds other files", [&](auto& o) { o.output = folder.path(); });
  refuses(ErrorCode::bad_config, "not a folder", [&](auto& o) { o.output = folder / "a.txt"; });
  refuses(ErrorCode::bad_config, "tokenize them separately", [&](auto& o) {
    o.inputs = {(folder / "a.txt").string(), (folder / "chat.jsonl").string()};
  });
  refuses(ErrorCode::invalid_argument, "1 were blank", [&](auto& o) { o.inputs = {(folder / "blank.txt").string()}; });
  refuses(ErrorCode::not_found, "no file matches", [&](auto& o) { o.inputs = {(folder / "*.none").string()}; });
  (void)tokenize_files(*tokenizer, good);
  expect_error(ErrorCode::bad_config, {"holds token shards already"}, [&] { (void)tokenize_files(*tokenizer, good); });
}

}  // namespace
}  // namespace quench
