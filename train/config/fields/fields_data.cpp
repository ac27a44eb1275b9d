#include <fmt/format.h>

#include "data/sampling/data_formats.h"
#include "data/sampling/packing.h"
#include "data/text/chat_renderer.h"
#include "data/text/chat_template.h"
#include "data/text/record_columns.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/fields/section_fields.h"
#include "train/config/section_enum_names.h"

namespace quench {

// {"text": "body"}: column names.
template <>
struct Codec<ColumnNames> {
  static constexpr ValueKind kind = ValueKind::json;
  static std::string type(const ValueRule&) {
    return fmt::format("object with the keys {}, each with the name of a column", fmt::join(kColumnTargets, ", "));
  }
  static Json schema(const ValueRule&) {
    Json keys = Json::object();
    for (const std::string_view target : kColumnTargets) keys.set(target, Json::Object{{"type", "string"}});
    return Json::Object{{"type", "object"}, {"properties", std::move(keys)}, {"additionalProperties", false}};
  }
  static ReadError read(const Json& value, const ValueRule& rule, ColumnNames& target) {
    if (!value.is_object()) return wrong_value(type(rule), value);
    ColumnNames names;
    for (const auto& [key, column] : value.as_object()) {
      if (!column.is_string()) return wrong_value(type(rule), column);
      names.emplace(key, column.as_string());
    }
    try {
      check_columns(names, "the value");
    } catch (const Error& error) {
      return ValueError{.reason = error.what(), .suggestion = {}, .line = value.line(), .column = value.column()};
    }
    target = std::move(names);
    return std::nullopt;
  }
  static Json write(const ColumnNames& value, const ValueRule&) {
    Json object = Json::object();
    for (const auto& [key, column] : value) object.set(key, column);
    return object;
  }
};

void add_data_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "data.train", QUENCH_MEMBER(data.train), any_value(), guarded,
            "Training data: files, glob patterns or folders of a data set, one after another; with weights, a mix.");
  add_field(fields, "data.validation", QUENCH_MEMBER(data.validation), any_value(), free,
            "Held-out data, in the same forms.");
  add_field(
      fields, "data.validation_split", QUENCH_MEMBER(data.validation_split), above(0), guarded,
      "Held-out data from data.train instead: below 1 a fraction, else a number of its records (documents), drawn "
      "by training.seed.");
  add_field(fields, "data.seq_len", QUENCH_MEMBER(data.seq_len), between(1, 1 << 24), guarded,
            "Tokens of one training sequence.");
  add_field(fields, "data.format", QUENCH_MEMBER(data.format), one_of(data_format_names()), guarded,
            data_format_help());
  add_field(fields, "data.packing", QUENCH_MEMBER(data.packing), any_value(), guarded,
            "Pack several documents into a sequence, with attention within documents only; false: one document a "
            "sequence, padded.");
  add_field(fields, "data.multipack", QUENCH_MEMBER(data.multipack), any_value(), guarded,
            "With packing: pack whole documents by best-fit decreasing; false: cut the stream of documents at sequence "
            "ends.");
  add_field(fields, "data.on_long", QUENCH_MEMBER(data.on_long), any_value(), guarded,
            "Documents longer than a sequence, with multipack or without packing: split over several sequences, "
            "truncate to one, or drop; counted at the start.");
  add_field(fields, "data.tokenizer", QUENCH_MEMBER(data.tokenizer), optional_path(), guarded,
            fmt::format("Tokenizer for text: {}.", tokenizer_choices()),
            "the tokenizer in model.path, else the one next to the token shards");
  add_field(fields, "data.eos", QUENCH_MEMBER(data.eos), any_value(), guarded,
            "End-of-sequence token after each document of text; auto: append it if the tokenizer has one and does not "
            "add it.");
  add_field(fields, "data.special_text", QUENCH_MEMBER(data.special_text), any_value(), guarded,
            "Special tokens in texts, such as <|im_end|>: encode them as tokens or as plain text; auto: tokens in "
            "records, text in text files with a warning that counts them.");
  add_field(fields, "data.text_field", QUENCH_MEMBER(data.text_field), any_value(), guarded,
            "Key of the text in records.");
  add_field(fields, "data.columns", QUENCH_MEMBER(data.columns), any_value(), guarded,
            "Column names of the data: {\"text\": \"body\"}, {\"prompt\": \"question\", \"completion\": \"answer\"}, "
            "{\"messages\": \"conversation\", \"tools\": \"functions\"}; dots lead into nested objects.");
  add_field(fields, "data.chat_template", QUENCH_MEMBER(data.chat_template), any_value(), guarded,
            fmt::format("Chat template: {}, or the path of a Jinja template (.jinja); auto: the tokenizer's own, else "
                        "the one whose special tokens the tokenizer has.",
                        fmt::join(chat_template_names(), ", ")));
  add_field(fields, "data.chat_date", QUENCH_MEMBER(data.chat_date), optional_text(), guarded,
            "Date for Jinja templates that ask for today's, as 2024-07-26.",
            "none: such templates use their own default, or are refused");
  add_field(fields, "data.chat_template_kwargs", QUENCH_MEMBER(data.chat_template_kwargs), any_value(), guarded,
            "Arguments of the chat template, as {\"enable_thinking\": false}; a record's own override them. "
            "\"chat_template\" names one of the tokenizer's templates.");
  add_field(fields, "data.train_on", QUENCH_MEMBER(data.train_on), any_value(), guarded,
            "Loss mask of chats and of prompts with completions: train on the assistant's turns, the last of them, or "
            "all tokens.");
  add_field(fields, "data.on_bad_record", QUENCH_MEMBER(data.on_bad_record), any_value(), guarded,
            "Reaction to an unreadable record; skipped ones are counted.");
  add_field(fields, "data.prefetch", QUENCH_MEMBER(data.prefetch), between(0, 1024), free,
            "Batches prepared ahead of the training step; 0: none.");
  add_field(fields, "data.shuffle", QUENCH_MEMBER(data.shuffle), any_value(), guarded,
            "Shuffle the sequences, differently in each epoch.");
  add_field(fields, "data.cache", QUENCH_MEMBER(data.cache), optional_text(), free, "Folder for tokenized text.",
            "<run.folder>/cache");
}

}  // namespace quench
