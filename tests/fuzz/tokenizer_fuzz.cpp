// Feeds untrusted bytes to the tokenizers. The first byte chooses what the rest is:
//   'j' a tokenizer.json; if it is accepted, encoding must not throw and ids must be in range
//   't' text; what is encoded must decode to itself, at once and as a stream
//   'b' training text; the trained tokenizer must encode and decode it to itself
//   'n' text to be normalized; doing it twice changes nothing

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/system/log.h"
#include "core/system/utf8.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/stream_decoder.h"
#include "data/tokenizer/text/unicode.h"

namespace {

using quench::EncodeOptions;
using quench::Tokenizer;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(text, EncodeOptions{.add_special_tokens = false, .parse_special = parse_special});
    require(tokenizer.decode(ids) == text);
    quench::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const auto id : ids) streamed += stream.push(id);
    require(streamed + stream.finish() == text);
  }
}

std::unique_ptr<Tokenizer> train(std::string_view text) {
  quench::BpeTrainingOptions options;
  options.vocab_size = 400;
  return quench::train_bpe(std::span(&text, 1), options);
}

void read_description(std::string_view json) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = std::make_unique<quench::JsonTokenizer>(
        quench::TokenizerFiles("tokenizer.json", {{"tokenizer.json", std::string(json)}}));
  } catch (const quench::Error&) {
    return;
  }
  for (const auto id : tokenizer->encode("Hello, w\u00F6rld <s> \xFF 123\n\n  e\u0301")) {
    require(id >= 0 && id < tokenizer->vocab_size());
    (void)tokenizer->token_text(id);
  }
}

void normalize(std::string_view text) {
  if (quench::find_invalid_utf8(text) != std::string_view::npos) return;
  std::string once, twice;
  const std::string_view normal = quench::normalize_nfc(text, once);
  require(quench::normalize_nfc(normal, twice) == normal);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  quench::set_log_level("off");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto bytes = quench::load_tokenizer("bytes");
  static const auto trained = train("the cat sat on the mat; the dog sat on the log. It's 1234, isn't it?");
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'j': read_description(rest); break;
    case 't':
      check_round_trip(*bytes, rest);
      check_round_trip(*trained, rest);
      break;
    case 'b': check_round_trip(*train(rest), rest); break;
    case 'n': normalize(rest); break;
    default: break;
  }
  return 0;
}
