#include "apps/reader_options.h"

#include "data/formats/token_format.h"

namespace quench {

namespace {

bool is_text_format(std::string_view name) {
  return name == "auto" || name == "text" || name == "jsonl";
}

}  // namespace

void add_reader_options(CLI::App& verb, ReaderArguments& a, bool token_files) {
  verb.add_option("--format", a.format,
                  token_files ? "auto (by name and first bytes), text, jsonl, or a token format: quench, llm.c, llmq, "
                                "megatron, nanogpt, npy"
                              : "auto (by file name), text or jsonl")
      ->capture_default_str();
  verb.add_option("--split", a.split, "Where a text file's documents end: file, blank_line, marker (<|endoftext|>)")
      ->capture_default_str();
  verb.add_option("--record", a.record, "What a JSON line holds: auto, text, tokens, messages, sharegpt")
      ->capture_default_str();
  verb.add_option("--field", a.field, "JSON field with the text")->capture_default_str();
  verb.add_option("--on-bad-record", a.on_bad_record, "error or skip")->capture_default_str();
  verb.add_option(
          "--chat-template", a.chat_template,
          "For records of messages: auto (what the tokenizer's special tokens are made for), llama2, llama3 or chatml")
      ->capture_default_str();
}

ReaderOptions reader_options(const ReaderArguments& a, bool token_files) {
  ReaderOptions options;
  if (token_files && !is_text_format(a.format))
    (void)token_format_from_string(a.format);
  else
    options.format = document_format_from_string(a.format);
  options.split = text_split_from_string(a.split);
  options.record = record_kind_from_string(a.record);
  options.field = a.field;
  options.on_bad_record = bad_record_from_string(a.on_bad_record);
  options.chat_template = chat_template_from_string(a.chat_template);
  return options;
}

}  // namespace quench
