#pragma once
// Document policies and their config values.

#include <cstdint>

#include "core/system/enum_names.h"

namespace quench {

// Document boundaries of text files.
enum class TextSplit : std::uint8_t {
  file,
  blank_line,  // one or more lines that are empty or only spaces and tabs
  marker,      // every occurrence of a marker such as <|endoftext|>
};
template <>
struct EnumNames<TextSplit> {
  static constexpr EnumTable<TextSplit, 3> values = {
      {{TextSplit::file, "file"}, {TextSplit::blank_line, "blank_line"}, {TextSplit::marker, "marker"}}};
};

enum class BadRecord : std::uint8_t {
  error,
  skip,  // skipped and counted
};
template <>
struct EnumNames<BadRecord> {
  // "stop": alias in configs of 0.2.0.
  static constexpr EnumTable<BadRecord, 3> values = {
      {{BadRecord::error, "error"}, {BadRecord::skip, "skip"}, {BadRecord::error, "stop"}}};
};

// Target tokens of a conversation. Messages excluded by their record are never targets.
enum class TrainOn : std::uint8_t {
  assistant,  // assistant messages and their end tokens
  last,       // the last assistant message only
  all,        // every token
};
template <>
struct EnumNames<TrainOn> {
  static constexpr EnumTable<TrainOn, 3> values = {
      {{TrainOn::assistant, "assistant"}, {TrainOn::last, "last"}, {TrainOn::all, "all"}}};
};

// Records of answers to a prompt (data/text/record_kind.h).
enum class AnswerRecords : std::uint8_t {
  none,
  pairs,    // a chosen and a rejected answer
  labels,   // an answer and whether it is desirable
  prompts,  // no answer: fields by which sampled ones are judged
};
template <>
struct EnumNames<AnswerRecords> {
  static constexpr EnumTable<AnswerRecords, 4> values = {{{AnswerRecords::none, "none"},
                                                          {AnswerRecords::pairs, "pairs"},
                                                          {AnswerRecords::labels, "labels"},
                                                          {AnswerRecords::prompts, "prompts"}}};
};

// Parsing of special token texts, such as "<|im_end|>", in data. Not applied to chats: their templates emit special
// tokens.
enum class SpecialText : std::uint8_t {
  automatic,  // records: as a Transformers tokenizer; text files: plain text, counted
  tokens,
  text,
};
template <>
struct EnumNames<SpecialText> {
  static constexpr EnumTable<SpecialText, 3> values = {
      {{SpecialText::automatic, "auto"}, {SpecialText::tokens, "tokens"}, {SpecialText::text, "text"}}};
};

enum class EosPolicy : std::uint8_t {
  automatic,  // appended if the tokenizer has one
  append,     // error for a tokenizer without one
  none,
};
template <>
struct EnumNames<EosPolicy> {
  static constexpr EnumTable<EosPolicy, 3> values = {
      {{EosPolicy::automatic, "auto"}, {EosPolicy::append, "append"}, {EosPolicy::none, "none"}}};
};

// Selection of held-out documents.
enum class ValidationSplit : std::uint8_t {
  tail,  // documents starting in the last `validation_fraction` of the input bytes
  hash,  // documents with a content hash below the fraction: stable per document
};
template <>
struct EnumNames<ValidationSplit> {
  static constexpr EnumTable<ValidationSplit, 2> values = {
      {{ValidationSplit::tail, "tail"}, {ValidationSplit::hash, "hash"}}};
};

}  // namespace quench
