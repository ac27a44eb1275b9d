#pragma once
// Tables of named choices: recipes, optimizers, model families, schedules, file formats. Entries in documentation
// order, default first; read by config fields, help, docs and errors. Linking programs and plug-ins
// (core/system/plugin.h) append entries with Registered<Entry>, while no other thread uses the library.

#include <algorithm>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/system/check.h"

namespace quench {
namespace detail {

// Entries added so far, of all tables. Caches of names are rebuilt when it changes.
[[nodiscard]] std::size_t registered_entries() noexcept;
void count_registered_entry() noexcept;
// Rethrows; while a plug-in is being loaded, load_plugin() throws the first one instead: an exception that leaves
// static initialization does not reach the caller of dlopen (glibc 2.36), it ends the process.
void fail_registration(std::exception_ptr error);

// Path of the plug-in being loaded; empty: none is.
[[nodiscard]] std::string loading_plugin();

template <class Entry>
struct AddedEntries {
  struct Added {
    Entry entry;
    std::string plugin;  // path; empty: registered by the program
  };
  std::vector<Added> entries;
  // Fault of a further entry; empty before the table's first use.
  std::function<std::string(const Entry&)> fault;
};

template <class Entry>
AddedEntries<Entry>& added_entries() {
  static AddedEntries<Entry> added;
  return added;
}

// Names under which a table finds an entry; overloaded for entries without a member `name`.
template <class Entry>
[[nodiscard]] std::vector<std::string_view> entry_names(const Entry& entry) {
  return {entry.name};
}

}  // namespace detail

// Adds an entry during static initialization, or later.
//
//   const Registered<recipes::Recipe> kMine{{.name = "mine", ...}};
//   const Registered<recipes::Recipe> kTuned{[] { return make_recipe("tuned.json"); }};  // may throw
template <class Entry>
class Registered {
 public:
  explicit Registered(Entry entry) {
    add([&entry] { return std::move(entry); });
  }
  // make: returns the entry. In a plug-in, load_plugin() throws its exception.
  template <class Make>
  requires std::is_invocable_r_v<Entry, Make&>
  explicit Registered(Make make) { add(make); }

 private:
  template <class Make>
  static void add(Make&& make) {
    try {
      auto& added = detail::added_entries<Entry>();
      Entry entry = make();
      if (added.fault) {
        const std::string fault = added.fault(entry);
        QUENCH_CHECK_AS(ErrorCode::bad_config, fault.empty(), "{}", fault);
      }
      added.entries.push_back({std::move(entry), detail::loading_plugin()});
      detail::count_registered_entry();
    } catch (...) {
      detail::fail_registration(std::current_exception());
    }
  }
};

// A table's own entries, then those added. References stay valid. Throws bad_config for a name that stands for two.
template <class Entry>
class TableEntries {
 public:
  // what: noun for messages ("recipe").
  TableEntries(std::string_view what, std::vector<Entry> own) : what_(what) {
    entries_.reserve(own.size() + kMostAdded);
    for (Entry& entry : own) add(std::move(entry), {});
    (void)all();
    detail::added_entries<Entry>().fault = [this](const Entry& entry) { return fault(entry); };
  }
  ~TableEntries() { detail::added_entries<Entry>().fault = nullptr; }
  TableEntries(const TableEntries&) = delete;
  TableEntries& operator=(const TableEntries&) = delete;

  [[nodiscard]] const std::vector<Entry>& all() const {
    const auto& added = detail::added_entries<Entry>().entries;
    for (; taken_ < added.size(); ++taken_) add(added[taken_].entry, added[taken_].plugin);
    return entries_;
  }

 private:
  static constexpr std::size_t kMostAdded = 256;

  void add(Entry entry, const std::string& plugin) const {
    const std::string problem = fault(entry);
    QUENCH_CHECK_AS(ErrorCode::bad_config, problem.empty(), "{}{}", plugin.empty() ? "" : "plug-in " + plugin + ": ",
                    problem);
    entries_.push_back(std::move(entry));
  }
  // Empty: none.
  [[nodiscard]] std::string fault(const Entry& entry) const {
    using detail::entry_names;
    if (entries_.size() == entries_.capacity())
      return format_message("more than {} entries were added to the table of {} names", kMostAdded, what_);
    for (const Entry& known : entries_)
      for (const std::string_view name : entry_names(entry))
        if (const auto names = entry_names(known); std::ranges::find(names, name) != names.end())
          return format_message("the name '{}' stands for more than one {}; give the added {} another name", name,
                                what_, what_);
    return {};
  }

  std::string_view what_;
  mutable std::vector<Entry> entries_;
  mutable std::size_t taken_ = 0;
};

// Unique member `name`.
template <class Entry>
class ChoiceTable {
 public:
  // what: noun for messages ("recipe").
  ChoiceTable(std::string_view what, std::vector<Entry> own) : what_(what), entries_(what, std::move(own)) {}

  [[nodiscard]] std::span<const Entry> entries() const { return entries_.all(); }
  [[nodiscard]] auto begin() const { return entries_.all().begin(); }
  [[nodiscard]] auto end() const { return entries_.all().end(); }
  [[nodiscard]] std::size_t size() const { return entries_.all().size(); }
  [[nodiscard]] const Entry& operator[](std::size_t i) const { return entries_.all()[i]; }
  [[nodiscard]] const Entry& front() const { return entries_.all().front(); }

  [[nodiscard]] const Entry* find(std::string_view name) const {
    const auto found = std::ranges::find_if(entries(), [&](const Entry& entry) { return entry.name == name; });
    return found == entries().end() ? nullptr : &*found;
  }
  // Throws bad_config listing the names.
  [[nodiscard]] const Entry& require(std::string_view name) const { return require(name, what_); }
  // key: config key or option.
  [[nodiscard]] const Entry& require(std::string_view name, std::string_view key) const {
    const Entry* entry = find(name);
    if (entry != nullptr) return *entry;
    std::string known;
    for (const std::string& one : names()) known += (known.empty() ? "" : ", ") + one;
    QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, known);
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Entry& entry : entries()) names.emplace_back(entry.name);
    return names;
  }
  // "Update rule." -> "Update rule. adamw: AdamW with decoupled weight decay. sgd: ...".
  [[nodiscard]] std::string help(std::string_view first_sentence) const {
    std::string text(first_sentence);
    for (const Entry& entry : entries()) text += format_message(" {}: {}.", entry.name, entry.summary);
    return text;
  }

 private:
  std::string_view what_;
  TableEntries<Entry> entries_;
};

}  // namespace quench
