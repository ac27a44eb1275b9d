#include "data/formats/token_stream.h"

#include <glob.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/system/missing_path.h"

namespace quench {

std::vector<std::filesystem::path> expand_file_patterns(const std::vector<std::string>& patterns) {
  std::vector<std::filesystem::path> paths;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> matches;
    std::error_code ignored;
    if (pattern.find_first_of("*?[{") == std::string::npos || std::filesystem::exists(pattern, ignored)) {
      const auto pair = megatron_pair(pattern);
      matches.push_back(pair ? pair->string() : pattern);
    } else {
      glob_t found{};
      const int status = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
      for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) matches.emplace_back(found.gl_pathv[i]);
      ::globfree(&found);
      QUENCH_CHECK_AS(ErrorCode::not_found, !matches.empty(), "no file matches {}{}", pattern,
                      missing_path_text(pattern));
      std::sort(matches.begin(), matches.end());
    }
    for (std::string& match : matches) {
      QUENCH_CHECK_AS(ErrorCode::bad_config, !std::filesystem::is_directory(match, ignored),
                      "{} is a folder; name its files, as {}/*.bin", match, match);
      QUENCH_CHECK_AS(ErrorCode::bad_config, seen.insert(match).second, "{} is named twice in the list of data files",
                      match);
      paths.emplace_back(std::move(match));
    }
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !paths.empty(), "the list of data files is empty");
  return paths;
}

TokenStream::TokenStream(std::vector<std::shared_ptr<const TokenSource>> sources) : sources_(std::move(sources)) {
  QUENCH_CHECK(!sources_.empty(), "token stream of no files");
  starts_.push_back(0);
  const TokenSource* fingerprinted = nullptr;
  for (const auto& source : sources_) {
    starts_.push_back(starts_.back() + source->size());
    const std::string fingerprint = source->tokenizer_fingerprint();
    if (fingerprint.empty()) continue;
    QUENCH_CHECK(fingerprint_.empty() || fingerprint == fingerprint_,
                 "these were made with different tokenizers (fingerprints {} and {}):\n  {}\n  {}", fingerprint_,
                 fingerprint, fingerprinted->describe(), source->describe());
    fingerprint_ = fingerprint;
    fingerprinted = source.get();
  }
}

std::unique_ptr<TokenStream> TokenStream::open(const std::vector<std::string>& patterns,
                                               const TokenSourceOptions& options) {
  const auto paths = expand_file_patterns(patterns);
  std::vector<std::shared_ptr<const TokenSource>> sources;
  for (const auto& path : paths) {
    // corpus* matches both files of a Megatron-LM pair; either opens it.
    const bool listed_twice =
        path.extension() == ".idx" && std::find(paths.begin(), paths.end(), megatron_paths(path).bin) != paths.end();
    if (!listed_twice) sources.push_back(open_token_file(path, options));
  }
  return std::make_unique<TokenStream>(std::move(sources));
}

std::string TokenStream::describe() const {
  std::string text;
  for (const auto& source : sources_) {
    if (!text.empty()) text += '\n';
    text += source->describe();
  }
  return text;
}

std::uint64_t TokenStream::document_count() const {
  std::uint64_t all = 0;
  for (const auto& source : sources_) {
    const std::uint64_t count = source->document_count();
    if (count == 0) return 0;
    all += count;
  }
  return all;
}

bool TokenStream::has_target_mask() const {
  return std::any_of(sources_.begin(), sources_.end(), [](const auto& source) { return source->has_target_mask(); });
}

template <class Visit>
void TokenStream::for_each_part(std::uint64_t begin, std::uint64_t count, Visit visit) const {
  QUENCH_CHECK(begin <= size() && count <= size() - begin, "tokens {} to {} asked for, the stream has {}", begin,
               begin + count, size());
  auto i = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
  for (std::uint64_t done = 0; done < count; ++i) {
    const std::uint64_t inside = begin + done - starts_[i];
    const std::uint64_t part = std::min(count - done, starts_[i + 1] - starts_[i] - inside);
    if (part > 0) visit(i, inside, static_cast<std::size_t>(done), static_cast<std::size_t>(part));
    done += part;
  }
}

void TokenStream::read(std::uint64_t begin, std::span<std::int32_t> out) const {
  for_each_part(begin, out.size(), [&](std::size_t i, std::uint64_t inside, std::size_t done, std::size_t part) {
    sources_[i]->read(inside, out.subspan(done, part));
  });
}

void TokenStream::read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const {
  for_each_part(begin, out.size(), [&](std::size_t i, std::uint64_t inside, std::size_t done, std::size_t part) {
    sources_[i]->read_target_mask(inside, out.subspan(done, part));
  });
}

void TokenStream::find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                                       std::vector<std::uint64_t>& starts) const {
  for_each_part(begin, tokens.size(), [&](std::size_t i, std::uint64_t inside, std::size_t done, std::size_t part) {
    if (inside == 0 && done > 0) starts.push_back(starts_[i]);
    const std::size_t first = starts.size();
    sources_[i]->find_document_starts(inside, tokens.subspan(done, part), starts);
    for (std::size_t k = first; k < starts.size(); ++k) starts[k] += starts_[i];
  });
}

}  // namespace quench
