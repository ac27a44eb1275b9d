#include "engine/grammar/grammar.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>

#include "core/json/json.h"
#include "core/number/random.h"
#include "core/system/check.h"
#include "engine/grammar/schema_keywords.h"

namespace quench {
namespace {

constexpr std::size_t kMostKept = 64;  // grammars

// Draws texts: a grammar whose next tokens take long to find would hold up all requests.
void try_grammar(const Grammar& grammar, std::span<const std::int64_t> stop_tokens) {
  constexpr int kTexts = 4, kTokens = 64;
  std::vector<std::int32_t> words(static_cast<std::size_t>((grammar.vocabulary_size() + 31) / 32));
  std::vector<std::int32_t> allowed;
  for (int text = 0; text < kTexts; ++text) {
    const std::unique_ptr<GrammarMatcher> matcher = grammar.begin(stop_tokens);
    for (int position = 0; position < kTokens && matcher->find_allowed(words); ++position) {
      allowed.clear();
      for (std::int64_t token = 0; token < grammar.vocabulary_size(); ++token)
        if ((static_cast<std::uint32_t>(words[static_cast<std::size_t>(token / 32)]) >> token % 32 & 1u) != 0)
          allowed.push_back(static_cast<std::int32_t>(token));
      const std::uint32_t draw = random_block({static_cast<std::uint64_t>(text), hash64("try_grammar"), 0},
                                              static_cast<std::uint64_t>(position))[0];
      const std::int32_t token = allowed[draw % allowed.size()];
      if (std::ranges::find(stop_tokens, token) != stop_tokens.end()) break;
      matcher->accept(token);
    }
  }
}

std::string_view name_of(GrammarKind kind) {
  return kind == GrammarKind::regex ? "the expression" : "the schema";
}

GrammarSource checked_source(const GrammarSource& source) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, source.text.size() <= kMostGrammarBytes,
                  "{} has {} bytes, expected at most {}", name_of(source.kind), source.text.size(), kMostGrammarBytes);
  GrammarSource checked = source;
  if (source.kind == GrammarKind::json_schema) {
    Json schema;
    try {
      schema = Json::parse(source.text, {.source = name_of(source.kind)});
    } catch (const Error& error) {
      QUENCH_FAIL(ErrorCode::bad_config, "{}", error.what());
    }
    check_schema(schema);
    checked.text = schema.dump();
  } else if (source.kind == GrammarKind::regex) {
    check_expression(source.text, std::string(name_of(source.kind)));
  }
  return checked;
}

}  // namespace

constinit OpenGrammarLibrary open_grammar_library = nullptr;

class GrammarCompiler::Impl {
 public:
  Impl(const GrammarVocabulary& vocabulary, const RehearsalLimits& limits)
      : limits_(limits), stop_tokens_(vocabulary.stop_tokens) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, open_grammar_library != nullptr,
                    "this build cannot keep an answer to a JSON schema or an expression: it was made without XGrammar, "
                    "whose sources scripts/setup.sh installs before cmake");
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    std::ranges::any_of(vocabulary.texts, [](const std::string& text) { return !text.empty(); }),
                    "the tokenizer gives no token a text: an answer cannot keep to a JSON schema or an expression");
    library_ = open_grammar_library(vocabulary);
  }

  std::shared_ptr<const Grammar> compile(const GrammarSource& source) {
    if (const std::optional<Kept> known = find(source)) return grammar_of(*known);
    const std::lock_guard one_at_a_time(compiling_);  // memory is bounded
    if (const std::optional<Kept> known = find(source)) return grammar_of(*known);
    Kept made{.source = source, .grammar = nullptr, .fault = {}};
    try {
      const GrammarSource checked = checked_source(source);
      rehearse(name_of(source.kind), limits_, [&] { try_grammar(*library_->compile(checked), stop_tokens_); });
      made.grammar = library_->compile(checked);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_config) throw;
      made.fault = error.what();
    }
    const std::lock_guard lock(mutex_);
    kept_.push_front(std::move(made));
    if (kept_.size() > kMostKept) kept_.pop_back();
    return grammar_of(kept_.front());
  }

 private:
  // Null with a fault: a source that was refused is refused again without work.
  struct Kept {
    GrammarSource source;
    std::shared_ptr<const Grammar> grammar;
    std::string fault;
  };

  static std::shared_ptr<const Grammar> grammar_of(const Kept& kept) {
    if (kept.grammar == nullptr) QUENCH_FAIL(ErrorCode::bad_config, "{}", kept.fault);
    return kept.grammar;
  }

  std::optional<Kept> find(const GrammarSource& source) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(
        kept_, [&](const Kept& kept) { return kept.source.kind == source.kind && kept.source.text == source.text; });
    if (known == kept_.end()) return std::nullopt;
    kept_.splice(kept_.begin(), kept_, known);
    return *known;
  }

  RehearsalLimits limits_;
  std::vector<std::int64_t> stop_tokens_;
  std::unique_ptr<GrammarLibrary> library_;
  std::mutex compiling_, mutex_;
  std::list<Kept> kept_;  // last used first; of mutex_
};

GrammarCompiler::GrammarCompiler(const GrammarVocabulary& vocabulary, const RehearsalLimits& limits)
    : impl_(std::make_unique<Impl>(vocabulary, limits)) {}
GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Grammar> GrammarCompiler::compile(const GrammarSource& source) const {
  return impl_->compile(source);
}

}  // namespace quench
