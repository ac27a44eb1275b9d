#include "apps/options/reader_options.h"

#include "data/sampling/data_formats.h"

namespace quench {

void add_reader_options(const Command& verb, ReaderArguments& a, bool token_files) {
  verb.add_option("--format", a.format,
                  token_files ? fmt::format("By name and first bytes (auto), or one of {}",
                                            fmt::join(data_format_names(), ", "))
                              : "auto (by file name), text or jsonl")
      .show_default();
  verb.add_option("--split", a.split, "Where a text file's documents end: file, blank_line, marker (<|endoftext|>)")
      .show_default();
  verb.add_option("--record", a.record, fmt::format("What a JSON line holds: {}", fmt::join(record_kind_names(), ", ")))
      .show_default();
  verb.add_option("--field", a.field, "JSON field with the text").show_default();
  verb.add_option("--on-bad-record", a.on_bad_record, "error or skip").show_default();
  verb.add_option(
          "--chat-template", a.chat_template,
          "For chats: auto (the tokenizer's own, or what its special tokens are made for), llama2, llama3, chatml, or "
          "a .jinja file")
      .show_default();
  verb.add_option("--chat-date", a.chat_date, "What a template that asks for today's date is told, as 2024-07-26");
  verb.add_option("--train-on", a.train_on,
                  fmt::format("Which tokens of a chat are targets: {}", fmt::join(train_on_names(), ", ")))
      .show_default();
}

ReaderOptions reader_options(const ReaderArguments& a, bool token_files) {
  ReaderOptions options;
  if (!token_files || token_format_named(a.format) == nullptr) options.format = document_format_from_string(a.format);
  options.split = text_split_from_string(a.split);
  options.record = record_kind_from_string(a.record);
  options.field = a.field;
  options.on_bad_record = bad_record_from_string(a.on_bad_record);
  set_chat_template(options, a.chat_template);
  options.chat_date = a.chat_date;
  options.train_on = train_on_from_string(a.train_on);
  return options;
}

}  // namespace quench
