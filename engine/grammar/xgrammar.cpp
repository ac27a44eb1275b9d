// Grammars by XGrammar (Apache-2.0; Dong et al., 2024, arXiv:2411.15100).

#include <grammar_functor.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/json/json.h"
#include "core/system/check.h"
#include "engine/grammar/grammar.h"

namespace quench {
namespace {

// First warning of the library while a grammar is compiled by this thread: a rule that it leaves out.
thread_local std::optional<std::string>* open_warning = nullptr;

// Scope of warnings.
class WarningScope {
 public:
  WarningScope() { open_warning = &warning_; }
  ~WarningScope() { open_warning = nullptr; }
  WarningScope(const WarningScope&) = delete;
  WarningScope& operator=(const WarningScope&) = delete;

  [[nodiscard]] const std::optional<std::string>& warning() const noexcept { return warning_; }

 private:
  std::optional<std::string> warning_;
};

// The library's exceptions, and those of its JSON parser, as errors.
template <class Work>
auto with_errors(ErrorCode code, const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(code, error.what());
  }
}

class Matcher final : public GrammarMatcher {
 public:
  Matcher(const xgrammar::CompiledGrammar& grammar, const std::vector<int>& stop_tokens)
      : matcher_(grammar, stop_tokens.empty() ? std::nullopt : std::optional(stop_tokens)),
        vocabulary_(grammar.GetTokenizerInfo().GetVocabSize()),
        ends_(!stop_tokens.empty()) {}

  void accept(std::int32_t token) override {
    const bool accepted = with_errors(ErrorCode::failed, [&] { return matcher_.AcceptToken(token); });
    QUENCH_CHECK_AS(ErrorCode::failed, accepted, "token {} does not follow the text in its grammar", token);
  }

  bool find_allowed(std::span<std::int32_t> words) override {
    const auto count = static_cast<std::int64_t>(words.size());
    QUENCH_CHECK(count == (vocabulary_ + 31) / 32, "find_allowed: {} words for {} tokens", count, vocabulary_);
    std::int64_t shape = count;
    DLTensor tensor{.data = words.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLInt, 32, 1},
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    with_errors(ErrorCode::failed, [&] { return matcher_.FillNextTokenBitmask(&tensor); });
    if (!ends_)
      for (const int token : matcher_.GetStopTokenIds())
        words[static_cast<std::size_t>(token / 32)] &= static_cast<std::int32_t>(~(1u << token % 32));
    if (const int rest = vocabulary_ % 32; rest != 0)
      words.back() = static_cast<std::int32_t>(static_cast<std::uint32_t>(words.back()) & ((1u << rest) - 1));
    return std::ranges::any_of(words, [](std::int32_t word) { return word != 0; });
  }

  bool is_complete() const override { return matcher_.IsCompleted(); }

 private:
  xgrammar::GrammarMatcher matcher_;
  int vocabulary_;
  bool ends_;  // has stop tokens; the library takes no empty list and uses the vocabulary's
};

class Compiled final : public Grammar {
 public:
  explicit Compiled(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}

  std::unique_ptr<GrammarMatcher> begin(std::span<const std::int64_t> stop_tokens) const override {
    std::vector<int> tokens;
    for (const std::int64_t token : stop_tokens)
      if (token >= 0 && token < vocabulary_size()) tokens.push_back(static_cast<int>(token));
    return with_errors(ErrorCode::failed, [&] { return std::make_unique<Matcher>(grammar_, tokens); });
  }
  std::int64_t vocabulary_size() const override { return grammar_.GetTokenizerInfo().GetVocabSize(); }

 private:
  xgrammar::CompiledGrammar grammar_;
};

xgrammar::GrammarCompiler compiler_for(const std::vector<std::string>& texts,
                                       const std::vector<std::int64_t>& stop_tokens) {
  return {xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, static_cast<int>(texts.size()),
                                  std::vector<std::int32_t>(stop_tokens.begin(), stop_tokens.end())),
          /*max_threads=*/1, /*cache_enabled=*/false};
}

// Texts without control characters other than line breaks. The library takes them within strings of limited length,
// where JSON has none, and elsewhere only tabs are lost, as white space.
std::vector<std::string> json_texts(std::vector<std::string> texts) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; };
  for (std::string& text : texts)
    if (std::ranges::any_of(text, is_control)) text.clear();
  return texts;
}

// The library keeps a pattern to what a JSON string holds unescaped where it makes an automaton of it; other patterns
// it expands as they are, quotation marks and all.
void require_string_pattern(const std::string& pattern) {
  const bool printable = std::ranges::all_of(pattern, [](char c) { return c >= 0x20 && c <= 0x7e; });
  bool kept = false;
  if (printable)
    if (auto automaton = xgrammar::GrammarFSMBuilder::Regex(pattern, /*json_string=*/true); automaton.IsOk()) {
      const auto states = std::move(automaton).Unwrap();
      std::unordered_set<int> reached;
      states.GetReachableStates(&reached);
      kept = std::ranges::any_of(reached, [&](int state) { return states.IsEndState(state); });
    }
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, kept,
      "an answer cannot be kept to \"pattern\" {}: expected an expression of printable ASCII "
      "characters without look-around, for texts without quotation marks, backslashes and control characters",
      Json(pattern).dump());
}

void require_string_patterns(const Json& schema) {
  if (schema.is_array())
    for (const Json& one : schema.as_array()) require_string_patterns(one);
  if (!schema.is_object()) return;
  const Json *type = schema.find("type"), *pattern = schema.find("pattern");
  if (type != nullptr && pattern != nullptr && pattern->is_string()) require_string_pattern(pattern->as_string());
  for (const auto& [name, value] : schema.as_object()) require_string_patterns(value);
}

class Library final : public GrammarLibrary {
 public:
  explicit Library(const GrammarVocabulary& vocabulary)
      : text_compiler_(compiler_for(vocabulary.texts, vocabulary.stop_tokens)),
        json_compiler_(compiler_for(json_texts(vocabulary.texts), vocabulary.stop_tokens)) {}

  std::shared_ptr<const Grammar> compile(const GrammarSource& source) const override {
    const WarningScope scope;
    auto grammar = with_errors(ErrorCode::bad_config, [&] { return compiled(source); });
    if (source.kind == GrammarKind::json_schema)
      with_errors(ErrorCode::bad_config, [&] { require_string_patterns(Json::parse(source.text)); });
    if (scope.warning()) QUENCH_FAIL(ErrorCode::bad_config, "an answer cannot be kept to it: {}", *scope.warning());
    return std::make_shared<Compiled>(std::move(grammar));
  }

 private:
  // White space between the parts of JSON; without a bound, models that prefer it never end.
  static constexpr int kMostSpaces = 32;

  [[nodiscard]] xgrammar::CompiledGrammar compiled(const GrammarSource& source) const {
    const auto of_schema = [&](const std::string& schema) {
      return json_compiler_.CompileJSONSchema(schema, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                              /*strict_mode=*/true, kMostSpaces);
    };
    switch (source.kind) {
      case GrammarKind::json: return of_schema("{}");
      case GrammarKind::json_object: return of_schema(R"({"type": "object", "additionalProperties": true})");
      case GrammarKind::json_schema: return of_schema(source.text);
      case GrammarKind::regex: break;
    }
    return text_compiler_.CompileRegex(source.text);
  }

  mutable xgrammar::GrammarCompiler text_compiler_, json_compiler_;  // without caches they have no state
};

[[maybe_unused]] const bool registered = [] {
  open_grammar_library = [](const GrammarVocabulary& vocabulary) -> std::unique_ptr<GrammarLibrary> {
    return std::make_unique<Library>(vocabulary);
  };
  return true;
}();

}  // namespace
}  // namespace quench

// The library calls these in place of its own log (XGRAMMAR_LOG_CUSTOMIZE). Hidden: shared libraries export none of its
// names.
namespace xgrammar {

[[noreturn, gnu::visibility("hidden")]] void LogFatalImpl(const std::string& file, int line,
                                                          const std::string& message);
[[gnu::visibility("hidden")]] void LogMessageImpl(const std::string& file, int line, int level,
                                                  const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level >= kWarning && quench::open_warning != nullptr && !quench::open_warning->has_value())
    *quench::open_warning = message;
}

}  // namespace xgrammar
