// Heads of GGUF files: no input crashes the parser, the tensors of what it accepts lie within the file, one after the
// other, and a tokenizer that is accepted encodes to ids in range.

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "core/system/check.h"
#include "core/system/log.h"
#include "data/tokenizer/json_tokenizer.h"
#include "export/formats/gguf/head_parser.h"
#include "export/formats/gguf/tokenizer_reader.h"
#include "export/formats/gguf/types.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void try_tokenizer(const quench::GgufHead& head) {
  std::unique_ptr<quench::Tokenizer> tokenizer;
  try {
    tokenizer = std::make_unique<quench::JsonTokenizer>(quench::tokenizer_files(head, "fuzz"));
  } catch (const quench::Error&) {
    return;
  }
  for (const auto id : tokenizer->encode("Hello, w\u00F6rld <s> \xFF 123\n\n  e\u0301")) {
    check(id >= 0 && id < tokenizer->vocab_size());
    (void)tokenizer->token_text(id);
  }
}

void try_file(std::span<const std::uint8_t> head, std::uint64_t file_size) {
  std::optional<quench::GgufHead> parsed;
  try {
    parsed = quench::parse_gguf_head(head, file_size, "fuzz");
  } catch (const quench::Error&) {
    return;
  }
  if (!parsed) return check(head.size() < file_size);
  std::uint64_t position = 0;
  std::set<std::string> names;
  for (const quench::GgufEntry& entry : parsed->tensors) {
    check(entry.begin >= position && entry.bytes <= file_size && entry.begin <= file_size - entry.bytes);
    check(names.insert(entry.name).second);
    const auto layout = quench::gguf_type_layout(entry.type);
    check(layout.has_value());
    check(static_cast<std::uint64_t>(entry.shape.numel()) / layout->elements * layout->bytes == entry.bytes);
    position = entry.begin + entry.bytes;
  }
  try_tokenizer(*parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quench::set_log_level("off");
  const std::span bytes(data, size);
  try_file(bytes, size);
  try_file(bytes, size + (std::uint64_t{1} << 20));
  return 0;
}
