#include "data/text/chat_renderer.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/system/check.h"
#include "core/system/log.h"
#include "data/jinja/jinja_text.h"

namespace quench {
namespace {

using jinja::Range;

constexpr std::string_view kDefault = "default", kToolUse = "tool_use", kChosen = "chat_template";
// Message texts that templates output.
constexpr std::array<std::string_view, 5> kWritten = {"content", "reasoning_content", "thinking", "reasoning",
                                                      "tool_calls"};

std::tm date_of(std::string_view text) {
  std::tm date{};
  const std::string copy(text);
  const char* end = strptime(copy.c_str(), "%Y-%m-%d", &date);
  QUENCH_CHECK_AS(ErrorCode::bad_config, end != nullptr && *end == '\0',
                  "the chat date '{}' is not a date of the form 2024-07-26 (data.chat_date, --chat-date)", text);
  return date;
}

const Json* find_in(const Json::Object& object, std::string_view key) {
  const auto found = std::ranges::find(object, key, &Json::Member::first);
  return found != object.end() ? &found->second : nullptr;
}

void set(jinja::Map& map, const std::string& key, jinja::Value value) {
  const auto found =
      std::ranges::find_if(map.members, [&](const auto& member) { return jinja::equal(member.first, key); });
  if (found != map.members.end())
    found->second = std::move(value);
  else
    map.members.emplace_back(key, std::move(value));
}

bool holds(const Json& value, const SpecialTokens& tokens) {
  if (value.is_string()) return !tokens.find(value.as_string()).empty();
  if (value.is_array()) return std::ranges::any_of(value.as_array(), [&](const Json& v) { return holds(v, tokens); });
  if (!value.is_object()) return false;
  return std::ranges::any_of(value.as_object(), [&](const Json::Member& member) {
    return !tokens.find(member.first).empty() || holds(member.second, tokens);
  });
}

bool is_assistant(const Json& message) {
  return message.at("role").as_string() == "assistant";
}

}  // namespace

ChatRenderer::ChatRenderer(const Tokenizer::ChatTemplateText& templates, const Tokenizer& tokenizer,
                           std::string_view date, const Json& kwargs)
    : special_(tokenizer) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, kwargs.is_null() || kwargs.is_object(),
                  "chat template arguments are {}, expected object (data.chat_template_kwargs, --chat-template-kwargs)",
                  kwargs.type_name());
  if (kwargs.is_object()) kwargs_ = kwargs.as_object();
  identity_ = fmt::format("jinja {} {}", date, kwargs_.empty() ? std::string() : kwargs.dump());
  if (!templates.text.empty()) add_source(std::string(kDefault), templates.text, templates.source, date);
  for (const auto& named : templates.named) add_source(named.name, named.text, named.source, date);
  for (const auto& [key, value] : kwargs_) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, key != "messages", "chat template arguments may not replace the messages");
    const bool read = key == kChosen ||
                      std::ranges::any_of(sources_, [&](const auto& source) { return source.second.names.reads(key); });
    QUENCH_CHECK_AS(ErrorCode::bad_config, read,
                    "{}: the chat template reads no variable '{}' (data.chat_template_kwargs, --chat-template-kwargs)",
                    templates.source, key);
  }
  const auto add = [&](const char* variable, std::optional<std::int32_t> id) {
    if (id) named_tokens_.emplace_back(variable, tokenizer.token_text(*id));
  };
  add("bos_token", tokenizer.bos_id());
  add("eos_token", tokenizer.eos_id());
  add("pad_token", tokenizer.pad_id());
  for (auto& [name, source] : sources_) choose_forms(source);
  find_control_tokens();
}

ChatRenderer::ChatRenderer(std::string_view source, const std::string& name, const Tokenizer& tokenizer,
                           std::string_view date)
    : ChatRenderer({.text = std::string(source), .source = name, .named = {}}, tokenizer, date) {}

void ChatRenderer::add_source(const std::string& name, std::string_view text, const std::string& origin,
                              std::string_view date) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  identity_ += fmt::format(" {} {:016x}{:016x}", name, hash.high64, hash.low64);
  Source source{.code = jinja::Template(text, origin), .origin = origin, .names = template_names(text, origin)};
  if (!date.empty()) source.code.set_date(date_of(date));
  sources_.insert_or_assign(name, std::move(source));
}

// Other special tokens, such as reasoning tags, may occur in answers.
void ChatRenderer::find_control_tokens() {
  constexpr std::string_view kQuestion = "quench-question", kAnswer = "quench-answer";
  const Json question = Json::Object{{"role", "user"}, {"content", kQuestion}};
  const Json answer = Json::Object{{"role", "assistant"}, {"content", kAnswer}};
  const std::string text = text_of({question}, false), prompted = text_of({question}, true);
  if (text.find(kQuestion) == std::string::npos) {
    control_ = special_;
    return;
  }
  std::vector<std::string> control;
  for (const auto& [variable, token] : named_tokens_) control.push_back(token);
  // Answer to next question's end: a template's system message may contain other special tokens.
  const std::string chat = text_of({question, answer, question}, false);
  const std::size_t answered = chat.rfind(kAnswer);
  const std::string turn = answered == std::string::npos ? text : chat.substr(answered);
  for (const auto& token : special_.find(turn)) control.push_back(turn.substr(token.begin, token.end - token.begin));
  const std::string added = prompted.substr(shared_prefix(text, prompted));
  control.emplace_back(special_.at(added, added.find_first_not_of(" \n")));
  std::erase_if(control, [&](const std::string& token) { return !special_.contains(token); });
  control_ = SpecialTokens(std::move(control));
}

// Call arguments are objects, unless rejected, or printed as a Python dict while text is verbatim. Contents are texts,
// unless the template outputs only lists of parts. A null content is absent, as in Transformers, if calls and thoughts
// render without one, and the call is written or never is; else null, if calls are written next to no other one
// (DeepSeek-R1); else empty. No tools are null, as in Transformers, unless only an empty list renders.
void ChatRenderer::choose_forms(Source& source) const {
  constexpr std::string_view kName = "quench_argument", kQuestion = "quench-question", kFunction = "quench_function";
  const auto text_with = [&](const Json::Array& messages) -> std::string {
    Conversation example;
    example.messages = messages;
    try {
      return source.code.render(variables({.conversation = example, .source = source, .messages = messages.size()}))
          .text;
    } catch (const Error&) {
      return {};
    }
  };
  const Json question = Json::Object{{"role", "user"}, {"content", kQuestion}};
  if (text_with({question}).empty()) {
    source.list_tools = true;
    source.list_tools = !text_with({question}).empty();
  }
  if (text_with({question}).find(kQuestion) == std::string::npos) {
    source.list_contents = true;
    source.list_contents = text_with({question}).find(kQuestion) != std::string::npos;
    if (source.list_contents)
      QUENCH_LOG_WARN(
          "{}: the chat template reads contents as lists of parts only: a text is passed as one part (Transformers "
          "would render nothing)",
          source.origin);
  }
  const auto calling = [&](const Json& content, const Json& arguments) {
    Json call = Json::Object{{"id", "call00001"},
                             {"type", "function"},
                             {"function", Json::Object{{"name", kFunction}, {"arguments", arguments}}}};
    return text_with(
        {question, Json::Object{{"role", "assistant"}, {"content", content}, {"tool_calls", Json::Array{call}}}});
  };
  const auto writes_call = [&](const Json& content) {
    bool written = false;
    for (const bool text : {false, true}) {
      source.text_arguments = text;
      const std::string rendering = calling(content, text ? Json("{}") : Json(Json::object()));
      written = written || rendering.find(kFunction) != std::string::npos;
    }
    source.text_arguments = false;
    return written;
  };
  source.absent_contents = true;
  const Json thinks = Json::Object{{"role", "assistant"}, {"content", Json()}, {"reasoning_content", "x"}};
  const bool renders_absent = !calling(Json(), Json::object()).empty() && !text_with({question, thinks}).empty();
  const bool absent = writes_call(Json());
  source.absent_contents = false;
  const bool empty = writes_call("");
  source.null_contents = true;
  const bool null = writes_call(Json());
  source.absent_contents = renders_absent && (absent || (!empty && !null));
  source.null_contents = !source.absent_contents && !empty && null;
  const Json content = source.null_contents ? Json() : Json("");
  const std::string object = calling(content, Json::Object{{std::string(kName), "x"}});
  if (!object.empty() && object.find(fmt::format("'{}'", kName)) == std::string::npos) return;
  source.text_arguments = true;
  const std::string arguments = fmt::format("\"{}\": \"x\"", kName);
  source.text_arguments = calling(content, "{" + arguments + "}").find(arguments) != std::string::npos;
}

const ChatRenderer::Source& ChatRenderer::source_for(const Conversation& conversation) const {
  const auto names = [&] {
    std::vector<std::string> list;
    for (const auto& [name, source] : sources_) list.push_back(name);
    return list;
  };
  const Json* chosen = find_in(conversation.template_kwargs, kChosen);
  if (chosen == nullptr) chosen = find_in(kwargs_, kChosen);
  if (chosen != nullptr && !chosen->is_null()) {
    const auto found = chosen->is_string() ? sources_.find(chosen->as_string()) : sources_.end();
    QUENCH_CHECK(found != sources_.end(),
                 "chat_template_kwargs: chat_template is {}, expected the name of one of the tokenizer's templates: {}",
                 chosen->dump(), fmt::join(names(), ", "));
    return found->second;
  }
  if (const auto tool_use = sources_.find(kToolUse); !conversation.tools.is_null() && tool_use != sources_.end())
    return tool_use->second;
  const auto found = sources_.find(kDefault);
  QUENCH_CHECK(
      found != sources_.end(),
      "the tokenizer has chat templates for several uses and none named default: name one of {} as chat_template "
      "in data.chat_template_kwargs (--chat-template-kwargs), or choose data.chat_template",
      fmt::join(names(), ", "));
  return found->second;
}

jinja::Map ChatRenderer::variables(const Call& call) const {
  const Conversation& conversation = call.conversation;
  TextMarks* marks = call.marks;
  const auto contents = [&](const Json& text) {
    if (text.is_null()) return Json("");
    if (!call.source.list_contents || !text.is_string() || text.as_string().empty()) return text;
    return Json(Json::Array{Json::Object{{"type", "text"}, {"text", text}}});
  };
  const auto value = [&](const Json& json) {
    return marks != nullptr ? marks->mark(json, kNoMessage, special_, true) : jinja::Value::from_json(json);
  };
  jinja::List messages;
  for (std::size_t i = 0; i < call.messages; ++i) {
    const Json& given = conversation.messages[i];
    const Json said = call.source.text_arguments ? given : with_object_arguments(given);
    const SpecialTokens& plain = is_assistant(said) ? control_ : special_;
    jinja::Map message;
    message.message = static_cast<int>(i);
    for (const auto& [key, given_item] : said.as_object()) {
      if (key == "content" && given_item.is_null() && call.source.absent_contents) continue;
      const bool null = given_item.is_null() && call.source.null_contents && calls_tools(said);
      const Json item = key == "content" && !null ? contents(given_item) : given_item;
      const auto part = std::ranges::find(kWritten, std::string_view(key)) - kWritten.begin();
      const bool written = part < std::ssize(kWritten);
      if (marks != nullptr) marks->begin_part(written ? static_cast<int>(part) : -1);
      message.members.emplace_back(key, marks != nullptr ? marks->mark(item, static_cast<int>(i), plain, !written)
                                                         : jinja::Value::from_json(item));
    }
    messages.emplace_back(std::move(message));
  }
  jinja::Map variables;
  for (const auto& [name, text] : named_tokens_) set(variables, name, text);
  set(variables, "tools", call.source.list_tools ? jinja::Value(jinja::List()) : jinja::Value());
  set(variables, "documents", jinja::Value());
  for (const auto& [key, item] : kwargs_)
    if (key != kChosen) set(variables, key, value(item));
  for (const auto& [key, item] : conversation.columns)
    if (call.source.names.reads(key)) set(variables, key, value(item));
  for (const auto& [key, item] : conversation.template_kwargs)
    if (key != kChosen) set(variables, key, value(item));
  if (!conversation.tools.is_null()) set(variables, "tools", value(conversation.tools));
  if (!conversation.documents.is_null()) set(variables, "documents", value(conversation.documents));
  set(variables, "messages", std::move(messages));
  set(variables, "add_generation_prompt", call.generation_prompt);
  return variables;
}

jinja::Rendered ChatRenderer::rendered(const Call& call) const {
  return call.source.code.render(variables(call));
}

std::string ChatRenderer::text_of(const Json::Array& messages, bool generation_prompt) const {
  Conversation example;
  example.messages = messages;
  try {
    const Source& source = source_for(example);
    return rendered({.conversation = example,
                     .source = source,
                     .messages = messages.size(),
                     .generation_prompt = generation_prompt})
        .text;
  } catch (const Error&) {
    return {};
  }
}

MarkedPlaces ChatRenderer::places(const Call& call, const std::string& text) const {
  const Conversation& conversation = call.conversation;
  std::string all = Json(conversation.messages).dump();
  for (const Json& json : {conversation.tools, conversation.documents, Json(conversation.template_kwargs),
                           Json(conversation.columns), Json(kwargs_)})
    all += json.dump();
  for (const MarkStyle style : kMarkStyles) {
    TextMarks marks(all, call.source.names.literals, style);
    Call marked = call;
    marked.marks = &marks;
    try {
      std::string again = rendered(marked).text;
      MarkedPlaces places = marks.take_out(again);
      places.exact = true;
      if (again == text) return places;
    } catch (const Error&) {
      // The next style has fewer marks.
    }
  }
  // Texts are located by search; their special tokens are indistinguishable from the template's.
  MarkedPlaces places;
  std::size_t from = 0;
  for (std::size_t i = 0; i < call.messages; ++i) {
    const Json& message = conversation.messages[i];
    QUENCH_CHECK(!holds(message, is_assistant(message) ? control_ : special_),
                 "message {}: its text contains a special token that cannot be distinguished from those of {}", i,
                 call.source.code.name());
    const std::string_view content = jinja::strip(content_text(message), {}, jinja::StripSide::both);
    const std::size_t at = content.empty() ? std::string::npos : text.find(content, from);
    if (at == std::string::npos) continue;
    from = at + content.size();
    places.places.push_back({at, static_cast<int>(i), 0});
    places.places.push_back({from, static_cast<int>(i), 0});
  }
  return places;
}

void ChatRenderer::note(const Call& call, std::string_view text, const MarkedPlaces& places, RecordNotes* notes) const {
  if (notes == nullptr) return;
  note_keys(call.conversation, &call.source.names, *notes);
  for (std::size_t i = 0; places.exact && i < call.messages; ++i)
    for (std::size_t part = 0; part < kWritten.size(); ++part) {
      // Often omitted by design before earlier answers.
      const Json* said = kWritten[part] == "content" || kWritten[part] == "tool_calls"
                             ? call.conversation.messages[i].find(kWritten[part])
                             : nullptr;
      const bool blank = said == nullptr || said->is_null() ||
                         (said->is_string() && jinja::strip(said->as_string(), {}, jinja::StripSide::both).empty());
      const bool found = blank || std::ranges::any_of(places.places, [&](const MarkedPlaces::Place& place) {
                           return place.owner == static_cast<int>(i) && place.part == static_cast<int>(part);
                         });
      if (!found) ++notes->unwritten[std::string(kWritten[part])];
    }
  for (const auto& token : places.plain_tokens)
    ++notes->plain_tokens[std::string(text.substr(token.begin, token.end - token.begin))];
}

std::vector<DocumentPiece> ChatRenderer::render(const Conversation& conversation, TrainOn train_on,
                                                RecordNotes* notes) const {
  Call call{.conversation = conversation, .source = source_for(conversation), .messages = conversation.messages.size()};
  for (const Json::Object* given : {&kwargs_, &conversation.columns, &conversation.template_kwargs})
    if (const Json* prompt = find_in(*given, "add_generation_prompt"); prompt != nullptr && prompt->is_bool())
      call.generation_prompt = prompt->as_bool();
  const jinja::Rendered rendered = this->rendered(call);
  const MarkedPlaces places = this->places(call, rendered.text);
  const std::vector<Range> ranges = train_on == TrainOn::all ? all_targets(call, rendered, places)
                                    : call.source.code.marks_generation()
                                        ? marked_targets(call, rendered, places, train_on, notes)
                                        : targets(call, rendered, places, train_on, notes);
  note(call, rendered.text, places, notes);
  return pieces(rendered.text, ranges, places.plain_tokens);
}

std::vector<DocumentPiece> ChatRenderer::prompt(const Conversation& conversation) const {
  const Call call{.conversation = conversation,
                  .source = source_for(conversation),
                  .messages = conversation.messages.size(),
                  .generation_prompt = true};
  const std::string text = rendered(call).text;
  return pieces(text, {}, places(call, text).plain_tokens);
}

// Units of encoding, split around plain special tokens.
std::vector<DocumentPiece> ChatRenderer::pieces(std::string_view text, const std::vector<Range>& ranges,
                                                const std::vector<SpecialTokens::Occurrence>& plain) const {
  std::vector<DocumentPiece> pieces;
  const auto add = [&](std::size_t begin, std::size_t end, bool markup) {
    if (begin == end) return;
    DocumentPiece piece{.text = std::string(text.substr(begin, end - begin)), .target = false, .markup = markup};
    for (const Range& range : ranges) {
      const std::size_t from = std::max(range.begin, begin), to = std::min(range.end, end);
      if (from < to) piece.target_bytes.emplace_back(from - begin, to - begin);
    }
    pieces.push_back(std::move(piece));
  };
  std::size_t done = 0, stretch = 0, next = 0;
  const auto close = [&](std::size_t end) {  // segment up to `end`
    if (next == plain.size() || plain[next].begin >= end) return;
    add(done, stretch, true);
    add(stretch, end, false);
    done = end;
    while (next < plain.size() && plain[next].begin < end) ++next;
  };
  for (std::size_t i = 0; i < text.size() && next < plain.size();) {
    const std::size_t length = special_.at(text, i).size();
    const bool is_plain = std::ranges::any_of(plain, [&](const auto& token) { return token.begin == i; });
    if (length > 0 && !is_plain) {
      close(i);
      stretch = i + length;
    }
    i += std::max<std::size_t>(length, 1);
  }
  close(text.size());
  add(done, text.size(), true);
  return pieces;
}

}  // namespace quench
