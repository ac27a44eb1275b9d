// quench tokenize show: token ids and pieces of a text; trained tokens of a record.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "apps/common.h"
#include "apps/options/reader_options.h"
#include "apps/tokenize_show.h"
#include "core/system/printable.h"
#include "core/system/utf8.h"
#include "data/files/text_input.h"
#include "data/sampling/record_view.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/metrics/terminal.h"

namespace quench {
namespace {

constexpr std::size_t kMaxText = std::size_t{64} << 20;

struct ShowArguments {
  std::string tokenizer, text, input;
  std::string eos = "auto", on_long = "split";
  std::optional<std::int64_t> record;
  std::int64_t seq_len = 0;
  ReaderArguments reader;
  bool no_special = false, plain = false, json = false;
};

std::string whole_text(const std::string& path) {
  TextInput input(path);
  std::string text;
  while (true) {
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    const std::size_t old = text.size();
    text.resize(old + kBlock);
    text.resize(old + input.read(std::as_writable_bytes(std::span(text).subspan(old))));
    if (text.size() == old) return text;
    QUENCH_CHECK_AS(ErrorCode::bad_config, text.size() <= kMaxText, "{}: more than {} bytes of text to show",
                    input.name(), kMaxText);
  }
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// True if stdout is a terminal with colours.
bool shows_colours() {
  const char* no_color = std::getenv("NO_COLOR");
  return is_interactive(STDOUT_FILENO) && (no_color == nullptr || *no_color == '\0');
}

Json token_json(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string piece = tokenizer.token_text(id);
  Json token = Json::Object{{"id", id}, {"piece", piece}, {"special", tokenizer.is_special(id)}};
  if (find_invalid_utf8(piece) != std::string::npos) token.set("bytes", hexadecimal(piece));
  return token;
}

Json record_json(const Tokenizer& tokenizer, const RecordView& record) {
  Json tokens = Json::array();
  for (std::size_t i = 0; i < record.encoded.ids.size(); ++i) {
    Json token = token_json(tokenizer, record.encoded.ids[i]);
    token.set("trained", record.is_trained(i));
    tokens.push_back(std::move(token));
  }
  return Json::Object{{"record", record.origin},   {"text", tokenizer.decode(record.encoded.ids)},
                      {"count", record.tokens},    {"trained", record.trained},
                      {"dropped", record.dropped}, {"tokens", std::move(tokens)}};
}

void show_record(const ShowArguments& a) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !a.input.empty() && a.input != kStandardInput,
                  "--record needs --input, a file of records");
  const auto tokenizer = load_tokenizer(a.tokenizer);
  const EncoderOptions encoder{.eos = require_enum<EosPolicy>(a.eos, "--eos"), .add_special_tokens = !a.no_special};
  const RowLimit limit{a.seq_len, require_enum<LongDocuments>(a.on_long, "--on-long")};
  ReaderArguments arguments = a.reader;
  if (a.plain) arguments.special_text = enum_name(SpecialText::text);
  const std::vector<RecordView> records =
      read_record(a.input, *a.record, *tokenizer, reader_options(arguments), encoder, limit);
  const bool pair = records.size() == 2;
  if (a.json)
    return print_json(pair ? Json(Json::Object{{"chosen", record_json(*tokenizer, records[0])},
                                               {"rejected", record_json(*tokenizer, records[1])}})
                           : record_json(*tokenizer, records[0]));
  for (const RecordView& record : records) {
    const std::string answer = !pair ? "" : &record == &records.front() ? ", chosen" : ", rejected";
    const std::string counts = printable(record.origin) + answer + ": " + record_counts(record, limit);
    if (!shows_colours()) {
      std::printf("%s\n%s\n", marked_text(*tokenizer, record, kTrainedBegin, kTrainedEnd).c_str(), counts.c_str());
      continue;
    }
    // Bypasses the escaping of stdout: the text is already printable.
    (void)std::fflush(stdout);
    write_to_descriptor(STDOUT_FILENO, marked_text(*tokenizer, record, "\033[32m", "\033[0m") + "\n" + counts + "\n");
  }
}

void run_show(const ShowArguments& a, bool has_text) {
  if (a.record && !has_text) return show_record(a);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !a.record, "--record shows a record of --input, not of a text");
  QUENCH_CHECK_AS(ErrorCode::bad_config, has_text != !a.input.empty(),
                  "quench tokenize show needs a text or --input, and not both");
  const auto tokenizer = load_tokenizer(a.tokenizer);
  const std::string text = has_text ? a.text : whole_text(a.input);
  const auto ids = tokenizer->encode(text, {.add_special_tokens = !a.no_special, .parse_special = !a.plain});
  Json tokens = Json::array();
  for (const std::int32_t id : ids) {
    const std::string piece = tokenizer->token_text(id);
    const bool is_text = find_invalid_utf8(piece) == std::string::npos;
    const bool special = tokenizer->is_special(id);
    if (!a.json) {
      // Quoted as in JSON: spaces and control characters are visible.
      const std::string shown = is_text ? Json(piece).dump() : "bytes " + hexadecimal(piece);
      std::printf("%8d  %s%s\n", id, shown.c_str(), special ? "  special" : "");
      continue;
    }
    tokens.push_back(token_json(*tokenizer, id));
  }
  if (a.json)
    return print_json(Json::Object{{"bytes", text.size()}, {"count", ids.size()}, {"tokens", std::move(tokens)}});
  std::printf("%zu tokens of %zu bytes\n", ids.size(), text.size());
}

}  // namespace

void add_tokenize_show(const Command& tokenize) {
  auto a = std::make_shared<ShowArguments>();
  const Command show = tokenize.add_command("show", "Ids and pieces of a text; the trained tokens of a record");
  show.footer(
      "Examples: quench tokenize show --tokenizer models/llama 'Hello, world'\n"
      "          quench tokenize show --tokenizer models/llama --input chats.jsonl --record 1");
  show.add_option("--tokenizer", a->tokenizer, tokenizer_option_help("Tokenizer file, model folder"))
      .takes_hub_name()
      .required();
  const CommandOption text = show.add_option("text", a->text, "The text");
  show.add_option("--input", a->input,
                  "A file that holds the text, or - for standard input; with --record, a file of records")
      .takes_hub_name();
  show.add_option("--record", a->record,
                  "Show this record of --input as training reads it, the first is 1: trained tokens in colour on a "
                  "terminal, elsewhere in [[ ]], and how many are trained and dropped");
  show.add_option("--seq-len", a->seq_len, "With --record: tokens of a sequence (data.seq_len); 0: no limit")
      .show_default();
  show.add_option(
          "--on-long", a->on_long,
          fmt::format("With --record: longer records (data.on_long): {}", fmt::join(enum_names<LongDocuments>(), ", ")))
      .show_default();
  show.add_option("--eos", a->eos,
                  fmt::format("With --record: end-of-sequence token after a text: {}",
                              fmt::join(enum_names<EosPolicy>(), ", ")))
      .show_default();
  show.add_flag("--no-special", a->no_special, "Leave out the tokenizer's added special tokens (such as BOS)");
  show.add_flag("--plain", a->plain, "Special tokens that occur in the text are plain text");
  show.add_flag("--json", a->json, "Print the result as JSON");
  add_reader_options(show, a->reader, false, "--record-kind");
  add_answers_option(show, a->reader);
  show.on_run([a, text] { run_show(*a, text.given()); });
}

}  // namespace quench
