#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "core/system/signals.h"
#include "core/system/utf8.h"
#include "tests/testing.h"
#include "train/metrics/console_sink.h"
#include "train/metrics/metrics_log.h"
#include "train/metrics/progress_bar.h"
#include "train/metrics/run_log.h"
#include "train/metrics/terminal.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

StepMetrics at_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.total_steps = 1000;
  metrics.loss = 3.5;
  return metrics;
}

Progress progress_at(std::int64_t step, std::int64_t total = 1000) {
  return {.step = step, .total_steps = total, .loss = 3.2817, .tokens_per_second = 47960, .eta_seconds = 751};
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    close_reader();
    close_writer();
  }
  [[nodiscard]] int writer() const { return ends_[1]; }
  void close_reader() { close_end(0); }
  void close_writer() { close_end(1); }
  std::string read_all() {
    close_writer();
    return read_until_closed();
  }
  [[nodiscard]] std::string read_until_closed() const {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(ends_[0], buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }

 private:
  void close_end(int which) {
    if (ends_[which] >= 0) ::close(ends_[which]);
    ends_[which] = -1;
  }
  int ends_[2] = {-1, -1};
};

// A terminal of our own, without output processing, so that what is read is what was written.
class Terminal {
 public:
  explicit Terminal(int columns) {
    struct termios raw {};
    ::cfmakeraw(&raw);
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(columns);
    EXPECT_EQ(::openpty(&master_, &slave_, nullptr, &raw, &size), 0);
  }
  ~Terminal() {
    ::close(master_);
    if (slave_ >= 0) ::close(slave_);
  }
  [[nodiscard]] int descriptor() const { return slave_; }
  // What was written so far; at most one kernel buffer.
  std::string read_available() {
    std::string text;
    char buffer[4096];
    const timeval wait{0, 50000};
    for (;;) {
      fd_set ready;
      FD_ZERO(&ready);
      FD_SET(master_, &ready);
      timeval left = wait;
      if (::select(master_ + 1, &ready, nullptr, nullptr, &left) <= 0) return text;
      const ssize_t got = ::read(master_, buffer, sizeof(buffer));
      if (got <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }

 private:
  int master_ = -1, slave_ = -1;
};

// The lines that a terminal shows after `output`; fails on anything but text, carriage returns and line feeds, and on
// text beyond the right edge.
std::vector<std::string> screen(const std::string& output, int columns) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (const char c : output) {
    if (c == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (c == '\r') {
      column = 0;
    } else {
      EXPECT_GE(c, 0x20) << "control character";
      EXPECT_LT(column, static_cast<std::size_t>(columns)) << "wrapped";
      auto& line = lines.back();
      if (line.size() <= column) line.resize(column + 1, ' ');
      line[column++] = c;
    }
  }
  for (auto& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

TEST(ProgressBar, FillsTheLineAsFarAsItGoes) {
  EXPECT_EQ(render_progress_bar(progress_at(120), 200, false),
            "[====>                                   ] 120/1000 12%  loss 3.28  tok/s 47,960  eta 0:12:31");
  EXPECT_EQ(render_progress_bar(progress_at(1000), 25, false), "1000/1000 100%");
  EXPECT_EQ(render_progress_bar(progress_at(120), 40, false), "[=>          ] 120/1000 12%  eta 0:12:31");
}

TEST(ProgressBar, NeverExceedsItsColumns) {
  for (const bool unicode : {false, true})
    for (const std::int64_t total : {std::int64_t{0}, std::int64_t{10}, std::int64_t{1000000000000}})
      for (int columns = -1; columns < 130; ++columns)
        for (const std::int64_t step : {std::int64_t{0}, total / 3, total, total + 5}) {
          const std::string text = render_progress_bar(progress_at(step, total), columns, unicode);
          EXPECT_LE(progress_bar_columns(text), std::max(columns, 0)) << text;
          EXPECT_EQ(find_invalid_utf8(text), std::string::npos);
        }
}

TEST(ProgressBar, AnUnknownTotalShowsTheStep) {
  EXPECT_EQ(render_progress_bar({.step = 12}, 60, false), "step 12  loss 0.00  tok/s 0");
}

TEST(ProgressBar, UnicodeCellsTakeOneColumnEach) {
  const std::string text = render_progress_bar(progress_at(500), 60, true);
  EXPECT_THAT(text, HasSubstr("█"));
  EXPECT_LE(progress_bar_columns(text), 60);
  EXPECT_GT(text.size(), 60u);
}

TEST(ConsoleSink, PipedOutputIsLinesWithoutBarOrEscapes) {
  Pipe out, bar;
  {
    ConsoleSink sink({.output = out.writer(), .terminal = bar.writer()});
    sink.progress(progress_at(1));
    sink.step(at_step(1));
    sink.evaluation({.step = 1, .name = "validation", .values = {{"loss", 3.0}}});
    sink.sample({.step = 1, .prompt = "Once", .text = " upon\na \x1b[31mtime\x7f"});
    sink.progress(progress_at(2));
    sink.finish();
  }
  const std::string text = out.read_all();
  EXPECT_EQ(text, format_step_line(at_step(1)) +
                      "\nvalidation at step 1  loss 3.0000  time 0:00:00\nsample at step 1  Once upon a  [31mtime \n");
  EXPECT_EQ(bar.read_all(), "");
}

TEST(ConsoleSink, TheBarStaysBelowTheLinesAndLeavesNothingBehind) {
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C", 1);  // ASCII cells: a byte is a column
  for (const int columns : {20, 60, 132}) {
    Terminal terminal(columns);
    std::string shown;
    {
      ConsoleSink sink({.output = terminal.descriptor(), .terminal = terminal.descriptor()});
      sink.progress(progress_at(999));
      std::this_thread::sleep_for(std::chrono::milliseconds(110));
      sink.progress(progress_at(1));  // a shorter text than the one before
      shown = terminal.read_available();
      const auto lines = screen(shown, columns);
      ASSERT_EQ(lines.size(), 1u);
      EXPECT_THAT(lines[0], HasSubstr("1/1000 0%"));
      EXPECT_EQ(lines[0].find("999"), std::string::npos);
      sink.evaluation({.step = 1, .name = "v"});
      shown += terminal.read_available();
      EXPECT_EQ(screen(shown, 200).at(0), "v at step 1  time 0:00:00");
      EXPECT_THAT(screen(shown, 200).at(1), HasSubstr("1/1000"));
      sink.finish();
    }
    shown += terminal.read_available();
    EXPECT_EQ(screen(shown, 200).at(1), "");
    EXPECT_EQ(shown.find('\x1b'), std::string::npos);
  }
}

TEST(ConsoleSink, TheBarIsRedrawnAtMostTenTimesASecondButAlwaysAtTheEnd) {
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C", 1);  // ASCII cells: a byte is a column
  Terminal terminal(60);
  ConsoleSink sink({.output = terminal.descriptor(), .terminal = terminal.descriptor()});
  for (int step = 1; step <= 1000; ++step) sink.progress(progress_at(step));
  const std::string shown = terminal.read_available();
  EXPECT_LT(std::count(shown.begin(), shown.end(), '\r'), 20);
  EXPECT_THAT(screen(shown, 60).at(0), HasSubstr("1000/1000 100%"));
}

TEST(ConsoleSink, DumbTerminalsAndOffShowNoBar) {
  Terminal terminal(80);
  ::setenv("TERM", "dumb", 1);
  ConsoleSink({.output = terminal.descriptor(), .terminal = terminal.descriptor()}).progress(progress_at(1));
  ::setenv("TERM", "xterm", 1);
  ConsoleSink({.output = terminal.descriptor(), .terminal = terminal.descriptor(), .progress = ProgressDisplay::off})
      .progress(progress_at(1));
  EXPECT_EQ(terminal.read_available(), "");
}

TEST(ConsoleSink, AReaderThatLeavesIsAnErrorNotASignal) {
  Pipe out;
  ConsoleSink sink({.output = out.writer()});
  out.close_reader();
  EXPECT_THROW(sink.step(at_step(1)), Error);  // SIGPIPE has its default disposition here
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
}

TEST(ConsoleSink, ATerminalThatGoesAwayEndsTheBarOnly) {
  Pipe out, bar;
  ConsoleSink sink({.output = out.writer(), .terminal = bar.writer(), .progress = ProgressDisplay::on});
  bar.close_reader();
  EXPECT_NO_THROW(sink.progress(progress_at(1)));
  EXPECT_NO_THROW(sink.step(at_step(1)));
  EXPECT_EQ(out.read_all(), format_step_line(at_step(1)) + "\n");
}

TEST(ConsoleSink, SlowReadersOfANonBlockingPipeLoseNothing) {
  Pipe out;
  ASSERT_EQ(::fcntl(out.writer(), F_SETFL, O_NONBLOCK), 0);
  const std::string text(300000, 'x');  // more than a pipe holds
  std::thread writer([&] {
    write_to_descriptor(out.writer(), text);
    out.close_writer();
  });
  const std::string got = out.read_until_closed();
  writer.join();
  EXPECT_EQ(got.size(), text.size());
}

TEST(OneLine, CutsOnCharacterBoundaries) {
  EXPECT_EQ(one_line("äöü", 5), "äö...");
  EXPECT_EQ(one_line("äöü", 6), "äöü");
  EXPECT_EQ(one_line("a\tb\xC2\x9B"
                     "c",
                     20),
            "a b c");
  EXPECT_EQ(one_line("\xff", 20), "\xEF\xBF\xBD");
}

// `quench train | head -1` and `quench train >&-`: the run continues to its end.
TEST(TrainingConsole, SurvivesAClosedPipeOnBothStreams) {
  for (const bool closed_from_the_start : {false, true}) {
    Pipe out;
    out.close_reader();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(20);
      if (closed_from_the_start) {
        ::close(0), ::close(1), ::close(2);
        open_standard_streams();
      } else {
        ::dup2(out.writer(), 1);
        ::dup2(out.writer(), 2);
      }
      const SignalHandlers handlers;
      MetricsLog log;
      log.add(std::make_unique<ConsoleSink>());
      for (int step = 1; step <= 100; ++step) {
        log.step(at_step(step));
        log.progress(progress_at(step));
      }
      log.finish();
      ::_exit(42);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 42);
  }
}

TEST(TrainingConsole, AFileOpenedWithClosedStreamsDoesNotReceiveConsoleLines) {
  const testing::TempDir dir;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(0), ::close(1), ::close(2);
    open_standard_streams();
    MetricsLog log({.folder = dir.path(), .tensorboard = false});
    log.step(at_step(1));
    log.finish();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Json::parse(testing::read_file(dir / "metrics.jsonl")).at("step").as_int(), 1);
}

// Rows of a terminal that shows the text, without trailing blanks.
std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows(1);
  std::size_t column = 0;
  for (const char c : text) {
    std::string& row = rows.back();
    if (c == '\n') {
      rows.emplace_back();
      column = 0;
    } else if (c == '\r') {
      column = 0;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // a bar of block characters: one column each
      row.resize(std::max(row.size(), column + 1), ' ');
      row[column++] = c;
    }
  }
  for (std::string& row : rows) row.erase(row.find_last_not_of(' ') + 1);
  return rows;
}

TEST(ConsoleSink, OtherMessagesLeaveNoPartOfTheBarBehindThem) {
  testing::TempDir dir;
  init_logging();
  set_log_level("info");
  ::testing::internal::CaptureStderr();
  {
    ConsoleSink sink({.output = STDERR_FILENO, .progress = ProgressDisplay::on});
    RunLog log(dir / "log.txt", STDERR_FILENO);
    sink.progress(progress_at(1000));
    QUENCH_LOG_WARN("short");
    sink.progress(progress_at(1000));
    log.text("first step\n");
    sink.progress(progress_at(1000));
    sink.step(at_step(1000));
  }
  const std::vector<std::string> rows = rows_of(::testing::internal::GetCapturedStderr());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0], "warning: short");
  EXPECT_EQ(rows[1], "first step");
  EXPECT_EQ(rows[2], format_step_line(at_step(1000)));
  EXPECT_EQ(rows[3], "");
}

}  // namespace
}  // namespace quench
