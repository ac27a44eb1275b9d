#pragma once
// Tables of named choices: recipes, optimizers, model families, schedules, file formats. Entries in documentation
// order, default first; read by config fields, help, docs and errors. Linking programs append entries with
// Registered<Entry>.

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/check.h"

namespace quench {
namespace detail {

template <class Entry>
struct AddedEntries {
  std::vector<Entry> entries;
  bool read = false;
};

template <class Entry>
AddedEntries<Entry>& added_entries() {
  static AddedEntries<Entry> added;
  return added;
}

}  // namespace detail

// Adds an entry during static initialization; throws invalid_argument after the table's first use.
//
//   const Registered<recipes::Recipe> kMine{{.name = "mine", ...}};
template <class Entry>
class Registered {
 public:
  explicit Registered(Entry entry) {
    auto& added = detail::added_entries<Entry>();
    QUENCH_CHECK(!added.read, "an entry was registered after its table's first use; register it as a constant");
    added.entries.push_back(std::move(entry));
  }
};

// Called once by the table; later registrations throw.
template <class Entry>
[[nodiscard]] std::vector<Entry> with_registered(std::vector<Entry> own) {
  auto& added = detail::added_entries<Entry>();
  added.read = true;
  own.insert(own.end(), added.entries.begin(), added.entries.end());
  return own;
}

// Unique member `name`.
template <class Entry>
class ChoiceTable {
 public:
  // what: noun for messages ("recipe").
  ChoiceTable(std::string_view what, std::vector<Entry> own) : what_(what), entries_(with_registered(std::move(own))) {
    for (const Entry& entry : entries_)
      QUENCH_CHECK(find(entry.name) == &entry, "the name '{}' stands for more than one {}", entry.name, what_);
  }

  [[nodiscard]] std::span<const Entry> entries() const noexcept { return entries_; }
  [[nodiscard]] auto begin() const noexcept { return entries_.begin(); }
  [[nodiscard]] auto end() const noexcept { return entries_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] const Entry& operator[](std::size_t i) const { return entries_[i]; }
  [[nodiscard]] const Entry& front() const { return entries_.front(); }

  [[nodiscard]] const Entry* find(std::string_view name) const noexcept {
    const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.name == name; });
    return found == entries_.end() ? nullptr : &*found;
  }
  // Throws bad_config listing the names.
  [[nodiscard]] const Entry& require(std::string_view name) const { return require(name, what_); }
  // key: config key or option.
  [[nodiscard]] const Entry& require(std::string_view name, std::string_view key) const {
    const Entry* entry = find(name);
    QUENCH_CHECK_AS(ErrorCode::bad_config, entry != nullptr, "{} '{}' is unknown; known: {}", key, name,
                    fmt::join(names(), ", "));
    return *entry;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.emplace_back(entry.name);
    return names;
  }
  // "Update rule." -> "Update rule. adamw: AdamW with decoupled weight decay. sgd: ...".
  [[nodiscard]] std::string help(std::string_view first_sentence) const {
    std::string text(first_sentence);
    for (const Entry& entry : entries_) text += fmt::format(" {}: {}.", entry.name, entry.summary);
    return text;
  }

 private:
  std::string_view what_;
  std::vector<Entry> entries_;
};

}  // namespace quench
