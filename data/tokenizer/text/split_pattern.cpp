#include "data/tokenizer/text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "core/system/check.h"
#include "data/tokenizer/text/published_patterns.h"
#include "data/tokenizer/text/unicode_additions.h"

namespace quench {
namespace {

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

void append_ranges(std::string& members, std::span<const CodePointRange> ranges) {
  for (const auto& [first, last] : ranges) {
    members += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<unsigned>(first), static_cast<unsigned>(last));
  }
}

// Members of a general category.
std::string category_members(std::string_view category) {
  using namespace unicode_additions;
  std::string members = fmt::format("\\p{{{}}}", category);
  const bool letter = category == "L";
  if (letter || category == "Lu") append_ranges(members, kUppercaseLetters);
  if (letter || category == "Ll") append_ranges(members, kLowercaseLetters);
  if (letter || category == "Lm") append_ranges(members, kModifierLetters);
  if (letter || category == "Lo") append_ranges(members, kOtherLetters);
  if (category == "M") append_ranges(members, kMarks);
  if (category == "N") append_ranges(members, kNumbers);
  if (category == "P") append_ranges(members, kPunctuation);
  if (category == "S") append_ranges(members, kSymbols);
  return members;
}

// Without U+180E, unlike PCRE2's \s.
constexpr std::string_view kSpaceMembers = "\\t-\\r\\x{85}\\p{Z}";

// \s, \S and \p{...}: PCRE2's tables are older. No \S inside a class.
std::string spell_out_classes(std::string_view expression) {
  std::string result;
  bool in_class = false;
  const auto add_members = [&](std::string_view members) {
    result += in_class ? std::string(members) : fmt::format("[{}]", members);
  };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '[' && !in_class)
      in_class = true;
    else if (c == ']')
      in_class = false;
    if (c != '\\') {
      result += c;
      continue;
    }
    const char escaped = expression[++i];
    if (escaped == 's') {
      add_members(kSpaceMembers);
    } else if (escaped == 'S') {
      result += fmt::format("[^{}]", kSpaceMembers);
    } else if (escaped == 'p') {
      const std::size_t close = expression.find('}', i);
      add_members(category_members(expression.substr(i + 2, close - i - 2)));
      i = close;
    } else {
      result += {c, escaped};
    }
  }
  return result;
}

class MatchState {
 public:
  MatchState() {
    QUENCH_CHECK_AS(ErrorCode::out_of_memory, data_ != nullptr && context_ != nullptr,
                    "no memory for matching text against a split pattern");
    if (stack_ != nullptr) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  pcre2_match_data* data() { return data_.get(); }
  pcre2_match_context* context() { return context_.get(); }

 private:
  template <auto release>
  struct Release {
    template <class T>
    void operator()(T* object) const {
      release(object);
    }
  };
  std::unique_ptr<pcre2_match_data, Release<pcre2_match_data_free>> data_{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Release<pcre2_match_context_free>> context_{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack_free>> stack_{
      pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr)};
};

}  // namespace

struct SplitPattern::Compiled {
  pcre2_code* code = nullptr;
  bool jit = false;

  Compiled() = default;
  ~Compiled() { pcre2_code_free(code); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
};

SplitPattern::SplitPattern(std::string_view name, std::string_view expression, bool matches_everything)
    : name_(name),
      expression_(expression),
      matches_everything_(matches_everything),
      compiled_(std::make_unique<Compiled>()) {
  const std::string spelled_out = spell_out_classes(expression);
  int error = 0;
  std::size_t offset = 0;
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled_out.data()), spelled_out.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  QUENCH_CHECK_AS(ErrorCode::unsupported, compiled_->code != nullptr,
                  "split pattern {}: PCRE2 cannot compile it at {}: {}", name, offset, pcre2_message(error));
  // Slower without JIT (not built, or no writable code).
  compiled_->jit = pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

namespace {

const std::vector<SplitPattern>& published() {
  static const std::vector<SplitPattern> patterns = [] {
    std::vector<SplitPattern> result;
    for (const auto& p : kPublishedPatterns) result.emplace_back(p.name, p.expression, p.matches_everything);
    return result;
  }();
  return patterns;
}

}  // namespace

const SplitPattern* SplitPattern::find(std::string_view expression) {
  const auto found = std::ranges::find(published(), expression, &SplitPattern::expression);
  return found == published().end() ? nullptr : &*found;
}

std::vector<std::string> SplitPattern::names() {
  std::vector<std::string> result;
  for (const SplitPattern& pattern : published()) result.emplace_back(pattern.name());
  return result;
}

const SplitPattern& SplitPattern::named(std::string_view name) {
  const auto found = std::ranges::find(published(), name, &SplitPattern::name);
  QUENCH_CHECK(found != published().end(), "no split pattern is called \"{}\"; there are {}", name,
               fmt::join(names(), ", "));
  return *found;
}

void SplitPattern::split(std::string_view text, const PieceSink& sink) const {
  thread_local MatchState state;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::size_t* const match = pcre2_get_ovector_pointer(state.data());
  // Linear; against pathological cases.
  constexpr std::size_t kMaxLimit = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(state.context(),
                        static_cast<std::uint32_t>(std::min(kMaxLimit, 10'000'000 + 16 * text.size())));
  const auto run = [&](std::size_t from) {
    int status = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled_->jit) {
      status = pcre2_jit_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data(),
                               state.context());
    }
    if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
      status = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data(),
                           state.context());
    }
    return status;
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const int status = run(at);
    if (status == PCRE2_ERROR_NOMATCH) break;
    QUENCH_CHECK_AS(ErrorCode::failed, status >= 0, "split pattern {}: PCRE2 gave up at byte {} of {}: {}", name_, at,
                    text.size(), pcre2_message(status));
    const auto [start, end] = std::pair(match[0], match[1]);  // the sink may start another match
    if (start > at) sink(text.substr(at, start - at));
    sink(text.substr(start, end - start));
    at = end;
  }
  if (at < text.size()) sink(text.substr(at));
}

}  // namespace quench
