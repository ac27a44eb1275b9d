#include "export/formats/gguf/sentence_piece.h"

#include "core/system/check.h"

namespace quench {
namespace {

enum WireType : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers.
constexpr std::uint64_t kPiece = 1, kTrainer = 2, kNormalizer = 3;              // fields of ModelProto
constexpr std::uint64_t kPieceType = 3;                                         // field of SentencePiece
constexpr std::uint64_t kModelType = 3, kSpaceSuffix = 24;                      // fields of TrainerSpec
constexpr std::uint64_t kCharacterMap = 2, kDummyPrefix = 3, kExtraSpaces = 4;  // fields of NormalizerSpec
constexpr std::uint64_t kBpe = 2;                                               // value of ModelType
constexpr std::uint64_t kUserDefinedPiece = 4;                                  // value of SentencePiece.Type

struct Field {
  std::uint64_t number = 0, value = 0;  // value of integer fields
  std::string_view bytes;               // contents of messages and strings
};

// Iterator over the fields of a message.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3};
    switch (key & 7) {
      case kVarint: field.value = varint(); break;
      case kFixed64: take(8); break;
      case kFixed32: take(4); break;
      case kBytes: field.bytes = take(varint()); break;
      default: check(false);
    }
    return true;
  }

 private:
  static void check(bool condition) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, condition, "the SentencePiece model is damaged");
  }

  std::string_view take(std::uint64_t count) {
    check(count <= rest_.size());
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1).front());
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    check(false);
    return 0;
  }

  std::string_view rest_;
};

}  // namespace

SentencePieceSettings read_sentence_piece_settings(std::string_view model) {
  SentencePieceSettings settings;
  Message message(model);
  Field field, inner;
  std::int32_t pieces = 0;
  while (message.next(field)) {
    if (field.number == kPiece) ++pieces;
    if (field.number != kPiece && field.number != kTrainer && field.number != kNormalizer) continue;
    for (Message part(field.bytes); part.next(inner);) {
      if (field.number == kPiece) {
        if (inner.number == kPieceType && inner.value == kUserDefinedPiece) settings.user_defined.push_back(pieces - 1);
      } else if (field.number == kTrainer) {
        if (inner.number == kModelType) settings.bpe = inner.value == kBpe;
        if (inner.number == kSpaceSuffix) settings.space_suffix = inner.value != 0;
      } else if (inner.number == kCharacterMap) {
        settings.normalizes = !inner.bytes.empty();
      } else if (inner.number == kDummyPrefix) {
        settings.dummy_prefix = inner.value != 0;
      } else if (inner.number == kExtraSpaces) {
        settings.collapses_spaces = inner.value != 0;
      }
    }
  }
  return settings;
}

}  // namespace quench
