#define PCRE2_CODE_UNIT_WIDTH 8
#include "export/schemes/layer_pattern.h"

#include <pcre2.h>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::string_view kExpression = "re:";
constexpr std::string_view kEmbedding = "embed_tokens";  // only layer of that class
// Step limit of regular expressions, against adversarial patterns.
constexpr std::uint32_t kMostSteps = 1'000'000;

}  // namespace

LayerPattern::LayerPattern(std::string_view text)
    : text_(text),
      kind_(text == "Linear"                ? Kind::linear
            : text == "Embedding"           ? Kind::embedding
            : text.starts_with(kExpression) ? Kind::expression
                                            : Kind::name) {
  if (kind_ != Kind::expression) return;
  const std::string_view expression = text.substr(kExpression.size());
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                   PCRE2_ANCHORED | PCRE2_UTF, &error, &offset, nullptr);
  QUENCH_CHECK_AS(ErrorCode::unsupported, code != nullptr, "layer pattern '{}' does not compile (at {})", text, offset);
  expression_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
}

bool LayerPattern::matches(std::string_view layer) const {
  if (kind_ == Kind::linear || kind_ == Kind::embedding)
    return layer.ends_with(kEmbedding) == (kind_ == Kind::embedding);
  if (kind_ == Kind::name) return layer == text_;
  const auto* code = static_cast<const pcre2_code*>(expression_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMostSteps);
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(layer.data()), layer.size(), 0, 0, data.get(), context.get()) >=
         0;
}

bool LayerPattern::goes_before(const LayerPattern& other) const {
  return kind_ != other.kind_ ? kind_ < other.kind_ : text_ < other.text_;
}

}  // namespace quench
