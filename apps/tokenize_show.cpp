// quench tokenize show: the ids of a text and what each stands for.

#include <cstdio>

#include "apps/common.h"
#include "apps/tokenize_show.h"
#include "core/system/utf8.h"
#include "data/files/text_input.h"
#include "data/tokenizer/tokenizer_kind.h"

namespace quench {
namespace {

constexpr std::size_t kMaxText = std::size_t{64} << 20;

struct ShowArguments {
  std::string tokenizer, text, input;
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

void run_show(const ShowArguments& a, bool has_text) {
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
      // Quoted as in JSON, so that spaces and control characters are seen.
      const std::string shown = is_text ? Json(piece).dump() : "bytes " + hexadecimal(piece);
      std::printf("%8d  %s%s\n", id, shown.c_str(), special ? "  special" : "");
      continue;
    }
    Json token = Json::Object{{"id", id}, {"piece", piece}, {"special", special}};
    if (!is_text) token.set("bytes", hexadecimal(piece));
    tokens.push_back(std::move(token));
  }
  if (a.json)
    return print_json(Json::Object{{"bytes", text.size()}, {"count", ids.size()}, {"tokens", std::move(tokens)}});
  std::printf("%zu tokens of %zu bytes\n", ids.size(), text.size());
}

}  // namespace

void add_tokenize_show(const Command& tokenize) {
  auto a = std::make_shared<ShowArguments>();
  const Command show = tokenize.add_command("show", "Ids and pieces of a text");
  show.footer("Example: quench tokenize show --tokenizer models/llama 'Hello, world'");
  show.add_option("--tokenizer", a->tokenizer, tokenizer_option_help("Tokenizer file, model folder")).required();
  const CommandOption text = show.add_option("text", a->text, "The text");
  show.add_option("--input", a->input, "A file that holds the text, or - for standard input");
  show.add_flag("--no-special", a->no_special, "Leave out what the tokenizer puts around a text (such as BOS)");
  show.add_flag("--plain", a->plain, "Special tokens that occur in the text are plain text");
  show.add_flag("--json", a->json, "Print the result as JSON");
  show.on_run([a, text] { run_show(*a, text.given()); });
}

}  // namespace quench
