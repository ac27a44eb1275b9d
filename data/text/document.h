#pragma once
// One training document before encoding.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quench {

// Text, one special token, or ids.
struct DocumentPiece {
  std::string text{};                   // encoded as plain text, or, if `special`, the text of one special token
  std::vector<std::int32_t> ids{};      // already encoded; then `text` is empty
  std::vector<std::uint8_t> targets{};  // with ids, one flag an id (1: may be a target), or empty: `target` for all
  bool special = false;
  // Text that is encoded together with the text in front of it, so that no tokenizer sees a new text begin here.
  bool joined = false;
  bool target = true;   // whether the piece's tokens may be targets
  bool markup = false;  // special tokens in the text are encoded as such
  // With target false: bytes [first, second) of the text whose tokens may be targets nevertheless, as may those that
  // hold some of them.
  std::vector<std::pair<std::size_t, std::size_t>> target_bytes{};
};

struct Document {
  std::vector<DocumentPiece> pieces{};
  std::string origin{};   // "file:line" of its start
  bool complete = false;  // ids and chats: nothing is put before or after the pieces
  // A document too large to hold comes in parts: only the first has `begins`, only the last `ends`.
  bool begins = true;
  bool ends = true;
};

}  // namespace quench
