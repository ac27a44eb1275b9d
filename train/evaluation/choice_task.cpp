#include "train/evaluation/choice_task.h"

#include <algorithm>
#include <charconv>

#include "core/system/check.h"
#include "data/jinja/jinja_text.h"
#include "data/text/conversation.h"
#include "data/text/text_format.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{16} << 20;

[[noreturn]] void reject(const std::string& reason) {
  QUENCH_FAIL(ErrorCode::corrupt, "{}", reason);
}

const std::string& text_at(const Json& record, std::string_view key) {
  return typed_field(record, key, "string").as_string();
}

std::vector<std::string> texts_at(const Json& record, std::string_view key) {
  std::vector<std::string> texts;
  for (const Json& text : typed_field(record, key, "array").as_array()) {
    if (!text.is_string()) reject(fmt::format("{}[{}] is {}, expected string", key, texts.size(), text.type_name()));
    texts.push_back(text.as_string());
  }
  return texts;
}

// Integer, or its text as in the hub's HellaSwag.
std::size_t index_at(const Json& record, std::string_view key, std::size_t choices) {
  const Json* value = record.find(key);
  if (value == nullptr) reject(fmt::format("no field \"{}\"", key));
  std::int64_t index = -1;
  if (value->is_integer()) {
    index = value->as_int();
  } else if (value->is_string()) {
    const std::string& text = value->as_string();
    if (text.empty()) reject(fmt::format("\"{}\" is empty: records of a test split have no answer", key));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size()) index = -1;
  } else {
    reject(fmt::format("field \"{}\" is {}, expected integer or string", key, value->type_name()));
  }
  if (index < 0 || index >= static_cast<std::int64_t>(choices))
    reject(fmt::format("\"{}\" is {}, but there are {} choices, counted from 0", key, value->dump(), choices));
  return static_cast<std::size_t>(index);
}

// re.sub(r"\[.*?\]", "", text): brackets closed on the same line.
std::string without_brackets(const std::string& text) {
  std::string kept;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = text[i] == '[' ? text.find_first_of("]\n", i + 1) : std::string::npos;
    if (end != std::string::npos && text[end] == ']') {
      i = end + 1;
    } else {
      kept += text[i++];
    }
  }
  return kept;
}

// WikiHow texts have bracketed marks.
std::string clean(std::string_view text) {
  const std::string titled = jinja::replace(jinja::strip(text, "", jinja::StripSide::both), " [title]", ". ", -1);
  return jinja::replace(without_brackets(titled), "  ", " ", -1);
}

ChoiceItem hellaswag(const Json& record) {
  const std::string ending = jinja::with_case(text_at(record, "ctx_b"), jinja::LetterCase::capitalize);
  ChoiceItem item{clean(text_at(record, "activity_label") + ": " + text_at(record, "ctx_a") + " " + ending), {}, 0};
  for (const std::string& choice : texts_at(record, "endings")) item.choices.push_back(clean(choice));
  item.answer = index_at(record, "label", item.choices.size());
  return item;
}

std::string question(std::string_view text) {
  return fmt::format("Question: {}\nAnswer:", text);
}

// Hub: {"question": "...", "choices": {"text": [...], "label": [...]}}; original files: {"question": {"stem": "...",
// "choices": [{"text": "...", "label": "..."}, ...]}}.
ChoiceItem arc(const Json& record) {
  ChoiceItem item;
  std::vector<std::string> labels;
  const Json* asked = record.find("question");
  if (asked != nullptr && asked->is_object()) {
    item.context = question(text_at(*asked, "stem"));
    for (const Json& choice : typed_field(*asked, "choices", "array").as_array()) {
      if (!choice.is_object()) reject(fmt::format("a choice is {}, expected object", choice.type_name()));
      item.choices.push_back(text_at(choice, "text"));
      labels.push_back(text_at(choice, "label"));
    }
  } else {
    item.context = question(text_at(record, "question"));
    const Json* choices = record.find("choices");
    if (choices == nullptr || !choices->is_object())
      reject("no field \"choices\" that is an object of \"text\" and \"label\"");
    item.choices = texts_at(*choices, "text");
    labels = texts_at(*choices, "label");
  }
  if (labels.size() != item.choices.size())
    reject(fmt::format("{} choices have {} labels", item.choices.size(), labels.size()));
  const std::string& answer = text_at(record, "answerKey");
  const auto found = std::ranges::find(labels, answer);
  if (found == labels.end())
    reject(fmt::format("\"answerKey\" is \"{}\", which is none of the labels {}", answer, fmt::join(labels, ", ")));
  item.answer = static_cast<std::size_t>(found - labels.begin());
  return item;
}

ChoiceItem piqa(const Json& record) {
  ChoiceItem item{question(text_at(record, "goal")), {text_at(record, "sol1"), text_at(record, "sol2")}, 0};
  item.answer = index_at(record, "label", item.choices.size());
  return item;
}

constexpr std::string_view kArcFields = "question, choices {text, label}, answerKey";

}  // namespace

const ChoiceTable<ChoiceTask>& choice_tasks() {
  static const ChoiceTable<ChoiceTask> table(
      "task", {{"hellaswag", "the ending that fits a scene, of four", "activity_label, ctx_a, ctx_b, endings, label",
                hellaswag},
               {"arc_easy", "school science questions that are easy to look up", kArcFields, arc},
               {"arc_challenge", "school science questions that are not", kArcFields, arc},
               {"piqa", "how a thing is done, of two ways", "goal, sol1, sol2, label", piqa}});
  return table;
}

std::vector<ChoiceItem> read_choice_items(const ChoiceTask& task, const std::filesystem::path& file,
                                          std::optional<std::int64_t> limit) {
  const auto source = open_records(file, {.max_record_bytes = kMaxRecordBytes});
  std::vector<ChoiceItem> items;
  Record read;
  while ((!limit || static_cast<std::int64_t>(items.size()) < *limit) && source->next(read)) {
    const Json& record = read.value;
    const std::string& origin = read.origin;
    QUENCH_CHECK_AS(ErrorCode::corrupt, read.fault.empty(), "{}: {}", origin, read.fault);
    try {
      if (!record.is_object()) reject(fmt::format("the record is {}, expected object", record.type_name()));
      items.push_back(task.item(record));
      if (items.back().choices.size() < 2)
        reject(fmt::format("{} choices; there must be two or more", items.back().choices.size()));
      if (std::ranges::any_of(items.back().choices, &std::string::empty)) reject("a choice is empty");
    } catch (const Error& error) {
      QUENCH_FAIL(ErrorCode::corrupt, "{}: {}; a record of {} has {}", origin, error.what(), task.name, task.fields);
    }
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, !items.empty(), "{} holds no items of {}", file.string(), task.name);
  return items;
}

}  // namespace quench
