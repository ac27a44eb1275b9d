#include "train/metrics/console_sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include "core/system/check.h"
#include "core/system/transient_line.h"
#include "core/system/utf8.h"
#include "train/metrics/progress_bar.h"
#include "train/metrics/terminal.h"

namespace quench {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr std::size_t kSampleBytes = 400;

bool wants_bar(const ConsoleOptions& options) {
  switch (options.progress) {
    case ProgressDisplay::on: return true;
    case ProgressDisplay::off: return false;
    case ProgressDisplay::automatic: return is_interactive(options.terminal);
  }
  return false;
}

}  // namespace

std::string one_line(std::string_view text, std::size_t max_bytes) {
  std::string clean = replace_invalid_utf8(text);
  std::string line;
  for (std::size_t i = 0; i < clean.size();) {
    const std::size_t length = utf8_sequence_length(clean, i);
    const std::string_view character = std::string_view(clean).substr(i, length);
    if (line.size() + length > max_bytes) return line + "...";
    const auto lead = static_cast<unsigned char>(character[0]);
    // C0, DEL, and C1 (U+0080 .. U+009F), which some terminals interpret.
    const bool control =
        lead < 0x20 || lead == 0x7F || (lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0);
    if (control)
      line += ' ';
    else
      line += character;
    i += length;
  }
  return line;
}

ConsoleSink::ConsoleSink(const ConsoleOptions& options)
    : options_(options), show_bar_(wants_bar(options)), unicode_(is_utf8_locale()) {}

ConsoleSink::~ConsoleSink() {
  erase();
}

void ConsoleSink::step(const StepMetrics& metrics) {
  print(format_step_line(metrics));
}

void ConsoleSink::evaluation(const EvaluationMetrics& metrics) {
  print(format_evaluation_line(metrics));
}

void ConsoleSink::sample(const SampleRecord& sample) {
  std::string figures;
  for (const auto& [name, value] : sample.figures)
    if (value.is_number()) figures += fmt::format("{} {:.4g}  ", name, value.as_double());
  print(fmt::format("sample at step {}  {}{}", sample.step, figures,
                    one_line(sample.prompt + sample.text, kSampleBytes)));
}

void ConsoleSink::progress(const Progress& progress) {
  if (!show_bar_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool last = progress.total_steps > 0 && progress.step >= progress.total_steps;
  if (!last && !bar_.empty() && now - drawn_ < kRedrawInterval) return;
  drawn_ = now;
  // Some terminals wrap a full line.
  draw(render_progress_bar(progress, terminal_columns(options_.terminal) - 1, unicode_));
}

void ConsoleSink::finish() {
  erase();
}

void ConsoleSink::print(const std::string& line) {
  const std::string bar = bar_;
  erase();
  if (options_.print) {
    options_.print(line + "\n");
  } else {
    write_to_descriptor(options_.output, line + "\n");
  }
  if (!bar.empty()) draw(bar);
}

// Back in the first column for other messages.
void ConsoleSink::draw(const std::string& bar) {
  const int excess = progress_bar_columns(bar_) - progress_bar_columns(bar);
  const std::string blanks(static_cast<std::size_t>(excess > 0 ? excess : 0), ' ');
  try {
    write_to_descriptor(options_.terminal, bar + blanks + "\r");
    bar_ = bar;
    if (options_.terminal == STDERR_FILENO) set_transient_line(progress_bar_columns(bar));
  } catch (const Error&) {
    show_bar_ = false;
    bar_.clear();
  }
}

void ConsoleSink::erase() {
  if (!bar_.empty()) draw("");
}

}  // namespace quench
