#include "apps/serve/api/answer_formats.h"

#include "apps/serve/api/api_error.h"
#include "train/generation/grammar_vocabulary.h"

namespace quench::serve {

std::shared_ptr<const Grammar> AnswerFormats::compile(const std::optional<GrammarSource>& format) {
  if (!format) return nullptr;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (compiler_ == nullptr)
        compiler_ = std::make_unique<GrammarCompiler>(grammar_vocabulary(tokenizer_, vocabulary_, stop_tokens_));
    }
    return compiler_->compile(*format);
  } catch (const Error& error) {
    throw api_error(error, format->kind == GrammarKind::regex ? "structured_outputs" : "response_format");
  }
}

}  // namespace quench::serve
