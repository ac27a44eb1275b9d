#include "apps/options/reader_options.h"

#include "apps/options/choice_types.h"
#include "core/system/automatic_choice.h"
#include "data/sampling/data_formats.h"
#include "data/text/record_kind.h"
#include "data/text/text_format.h"

namespace quench {

void add_reader_options(const Command& verb, ReaderArguments& a, bool token_files, const std::string& record_option) {
  verb.add_option(
          "--format", a.format,
          token_files
              ? fmt::format("By name and first bytes (auto), or one of {}", fmt::join(data_format_names(), ", "))
              : fmt::format("auto (by first bytes and file name), {}", fmt::join(text_formats().names(), " or ")))
      .type_name(token_files ? kDataFormatType : kInputFormatType)
      .show_default();
  verb.add_option("--split", a.split,
                  fmt::format("Document separator of text files: {} ({})", fmt::join(enum_names<TextSplit>(), ", "),
                              ReaderOptions().marker))
      .show_default();
  verb.add_option(record_option, a.record,
                  fmt::format("Kind of records: {}", fmt::join(names_with_auto(record_kinds()), ", ")))
      .show_default();
  verb.add_option("--field", a.field, "Column or JSON field with the text").show_default();
  verb.add_option("--columns", a.columns,
                  fmt::format("Column names of {}: text=body, or prompt=question,completion=answer",
                              fmt::join(kColumnTargets, ", ")));
  verb.add_option("--special-text", a.special_text,
                  token_files ? fmt::format("Special tokens in texts: {}; auto: tokens",
                                            fmt::join(enum_names<SpecialText>(), ", "))
                              : fmt::format("Special tokens in texts: {}; auto: tokens in records, text in text files",
                                            fmt::join(enum_names<SpecialText>(), ", ")))
      .show_default();
  verb.add_option("--on-bad-record", a.on_bad_record, fmt::format("{}", fmt::join(enum_names<BadRecord>(), " or ")))
      .show_default();
  verb.add_option("--chat-template", a.chat_template,
                  "Chat template: auto (the tokenizer's own, or the one of its special tokens), llama2, llama3, "
                  "chatml, or a .jinja file")
      .show_default();
  verb.add_option("--chat-date", a.chat_date, "Date for chat templates that ask for it, as 2024-07-26");
  verb.add_option("--chat-template-kwargs", a.chat_template_kwargs,
                  "Arguments of the template, a JSON object such as {\"enable_thinking\": false}");
  verb.add_option("--train-on", a.train_on,
                  fmt::format("Which tokens of a chat are targets: {}", fmt::join(enum_names<TrainOn>(), ", ")))
      .show_default();
}

void add_answers_option(const Command& verb, ReaderArguments& a) {
  verb.add_option(
          "--preference", a.answers,
          fmt::format("Records of preference training and of sampling: {} (pairs: chosen and rejected answers; labels: "
                      "completions with a label, for KTO; prompts: without an answer, for GRPO)",
                      fmt::join(enum_names<AnswerRecords>(), ", ")))
      .show_default();
}

Json chat_template_kwargs(const std::string& text) {
  if (text.empty()) return {};
  Json kwargs;
  try {
    kwargs = Json::parse(text, {.source = "--chat-template-kwargs"});
  } catch (const Error& error) {
    QUENCH_FAIL(ErrorCode::bad_config, "{}", error.what());
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, kwargs.is_object(), "--chat-template-kwargs is {}, expected a JSON object",
                  kwargs.type_name());
  return kwargs;
}

ReaderOptions reader_options(const ReaderArguments& a, bool token_files) {
  ReaderOptions options;
  options.format = token_files ? data_format_named(a.format, "--format").text
                               : require_or_auto(text_formats(), a.format, "--format");
  options.split = require_enum<TextSplit>(a.split, "--split");
  options.record = require_or_auto(record_kinds(), a.record, "--record");
  options.field = a.field;
  options.columns = columns_from_words(a.columns, "--columns");
  options.on_bad_record = require_enum<BadRecord>(a.on_bad_record, "--on-bad-record");
  set_chat_template(options, a.chat_template);
  options.chat_date = a.chat_date;
  options.chat_template_kwargs = chat_template_kwargs(a.chat_template_kwargs);
  options.special_text = require_enum<SpecialText>(a.special_text, "--special-text");
  options.train_on = require_enum<TrainOn>(a.train_on, "--train-on");
  options.answers = require_enum<AnswerRecords>(a.answers, "--preference");
  return options;
}

}  // namespace quench
