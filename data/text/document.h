#pragma once
// Training document before encoding.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quench {

struct DocumentPiece {
  std::string text{};                   // plain text, or, if `special`, the text of one special token
  std::vector<std::int32_t> ids{};      // already encoded; then `text` is empty
  std::vector<std::uint8_t> targets{};  // with ids, one flag per id (1: may be a target), or empty: `target` for all
  bool special = false;
  // Encoded together with the preceding text; not the start of a text for the tokenizer.
  bool joined = false;
  bool target = true;   // tokens of the piece may be targets
  bool markup = false;  // special tokens in the text are parsed
  // With target false: bytes [first, second) of the text whose tokens, also partially overlapping ones, may be targets.
  std::vector<std::pair<std::size_t, std::size_t>> target_bytes{};
};

struct Document {
  std::vector<DocumentPiece> pieces{};
  std::string origin{};   // "file:line" of its start
  bool complete = false;  // ids and chats: no BOS or EOS is added
  // Target flag of the first token, which is never a target: role of an answer (record_kind.h).
  std::optional<bool> mark{};
  // Documents too large for memory come in parts: only the first has `begins`, only the last `ends`.
  bool begins = true;
  bool ends = true;
};

}  // namespace quench
