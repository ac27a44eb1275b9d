#pragma once
// What is done with documents where there is a choice, and the words for it.

#include <cstdint>

#include "core/system/enum_names.h"

namespace quench {

// Where a document of a text file ends.
enum class TextSplit : std::uint8_t {
  file,        // at the end of the file
  blank_line,  // at one or more lines that are empty or hold only spaces and tabs
  marker,      // at every occurrence of a marker such as <|endoftext|>
};
template <>
struct EnumNames<TextSplit> {
  static constexpr EnumTable<TextSplit, 3> values = {
      {{TextSplit::file, "file"}, {TextSplit::blank_line, "blank_line"}, {TextSplit::marker, "marker"}}};
};

// Of a record that cannot be read.
enum class BadRecord : std::uint8_t {
  error,
  skip,  // counted
};
template <>
struct EnumNames<BadRecord> {
  // "stop" stands in the configs of earlier runs.
  static constexpr EnumTable<BadRecord, 3> values = {
      {{BadRecord::error, "error"}, {BadRecord::skip, "skip"}, {BadRecord::error, "stop"}}};
};

// Which tokens of a conversation are targets. Nothing of a message that its record says not to train on is one.
enum class TrainOn : std::uint8_t {
  assistant,  // what the assistant is to produce: its messages and the tokens that end them
  last,       // of those, the last message's
  all,        // every token
};
template <>
struct EnumNames<TrainOn> {
  static constexpr EnumTable<TrainOn, 3> values = {
      {{TrainOn::assistant, "assistant"}, {TrainOn::last, "last"}, {TrainOn::all, "all"}}};
};

// Whether the text of special tokens, such as "<|im_end|>", in a text becomes those tokens. Chats do not ask: their
// templates write special tokens.
enum class SpecialText : std::uint8_t {
  automatic,  // in records: what a Transformers tokenizer does; in text files it stays text, and is counted
  tokens,
  text,
};
template <>
struct EnumNames<SpecialText> {
  static constexpr EnumTable<SpecialText, 3> values = {
      {{SpecialText::automatic, "auto"}, {SpecialText::tokens, "tokens"}, {SpecialText::text, "text"}}};
};

// The end-of-sequence token after a document.
enum class EosPolicy : std::uint8_t {
  automatic,  // appended where the tokenizer has one
  append,     // the same, but a tokenizer without one is an error
  none,
};
template <>
struct EnumNames<EosPolicy> {
  static constexpr EnumTable<EosPolicy, 3> values = {
      {{EosPolicy::automatic, "auto"}, {EosPolicy::append, "append"}, {EosPolicy::none, "none"}}};
};

// Which documents are held out.
enum class ValidationSplit : std::uint8_t {
  tail,  // those that start in the last `validation_fraction` of the input's bytes
  hash,  // those whose content's hash falls below the fraction: the same document always lands on the same side
};
template <>
struct EnumNames<ValidationSplit> {
  static constexpr EnumTable<ValidationSplit, 2> values = {
      {{ValidationSplit::tail, "tail"}, {ValidationSplit::hash, "hash"}}};
};

}  // namespace quench
