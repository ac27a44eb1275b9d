// Rows of the section data.

#include <fmt/format.h>

#include "data/sampling/data_formats.h"
#include "data/sampling/packing.h"
#include "data/text/chat_renderer.h"
#include "data/text/chat_template.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/enum_names.h"
#include "train/config/fields/field_builder.h"

namespace quench {

void add_data_fields(Fields& fields) {
  using enum ResumePolicy;
  fields.push_back(make_field("data.train", QUENCH_MEMBER(data.train), any_value(), guarded,
                              "Training data: files or glob patterns, each with an optional weight in the mix."));
  fields.push_back(make_field("data.validation", QUENCH_MEMBER(data.validation), any_value(), free,
                              "Held-out data in the same forms."));
  fields.push_back(make_field("data.seq_len", QUENCH_MEMBER(data.seq_len), between(1, 1 << 24), guarded,
                              "Tokens of one training sequence."));
  fields.push_back(
      make_field("data.format", QUENCH_MEMBER(data.format), one_of(data_format_names()), guarded, data_format_help()));
  fields.push_back(make_field("data.packing", QUENCH_MEMBER(data.packing), any_value(), guarded,
                              "Fill sequences with several documents, attention separated; false: one a sequence, "
                              "padded."));
  fields.push_back(make_field("data.multipack", QUENCH_MEMBER(data.multipack), any_value(), guarded,
                              "With packing: fill sequences with whole documents, chosen by their lengths so that "
                              "little padding is left; false: cut the stream of documents where a sequence is full."));
  fields.push_back(make_field("data.on_long", QUENCH_MEMBER(data.on_long), any_value(), guarded,
                              "What becomes of documents that are longer than a sequence, with multipack or without "
                              "packing: split over several sequences, truncate to one, or drop; counted at the "
                              "start."));
  fields.push_back(make_field("data.tokenizer", QUENCH_MEMBER(data.tokenizer), optional_text(), guarded,
                              fmt::format("Tokenizer for text: {}.", tokenizer_choices()),
                              "the tokenizer in model.path, else the one beside the token shards"));
  fields.push_back(make_field("data.eos", QUENCH_MEMBER(data.eos), any_value(), guarded,
                              "End-of-sequence token after each document of text; auto: where the tokenizer has one "
                              "and has not put it there itself."));
  fields.push_back(make_field("data.text_field", QUENCH_MEMBER(data.text_field), any_value(), guarded,
                              "Key of the text in JSONL records."));
  fields.push_back(make_field(
      "data.chat_template", QUENCH_MEMBER(data.chat_template), any_value(), guarded,
      fmt::format("How chats become tokens: {}, or the path of a Jinja template (.jinja); auto: the one that "
                  "came with the tokenizer, else that whose special tokens the tokenizer has.",
                  fmt::join(chat_template_names(), ", "))));
  fields.push_back(make_field("data.chat_date", QUENCH_MEMBER(data.chat_date), optional_text(), guarded,
                              "Date that a Jinja template is told when it asks for today's, as 2024-07-26.",
                              "none: such templates use their own default, or are refused"));
  fields.push_back(make_field("data.train_on", QUENCH_MEMBER(data.train_on), any_value(), guarded,
                              "Which tokens of chats and of prompts with completions are trained on: the assistant's "
                              "turns, the last of them, or all."));
  fields.push_back(make_field("data.on_bad_record", QUENCH_MEMBER(data.on_bad_record), any_value(), guarded,
                              "What to do with a text record that cannot be read; skipped ones are counted."));
  fields.push_back(make_field("data.prefetch", QUENCH_MEMBER(data.prefetch), between(0, 1024), free,
                              "Batches prepared ahead of the training step; 0: none."));
  fields.push_back(make_field("data.shuffle", QUENCH_MEMBER(data.shuffle), any_value(), guarded,
                              "Visit the sequences of an epoch in random order, a new one each epoch."));
  fields.push_back(make_field("data.cache", QUENCH_MEMBER(data.cache), optional_text(), free,
                              "Folder for tokenized text.", "<run.folder>/cache"));
}

}  // namespace quench
