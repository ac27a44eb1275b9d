#pragma once
// Allocator of the pages of a KV cache, with sharing of equal prefixes.
//
// A full page whose keys have been computed is known by its tokens, the tokens before it and the adapter that computed
// them. It stays after its last user has released it, until its place is needed: pages of no user are taken in the
// order of their release.

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace quench {

class PagePool {
 public:
  // Pages 0 to count - 1, of `page` tokens.
  PagePool(std::int64_t count, std::int64_t page);

  [[nodiscard]] std::int64_t count() const noexcept { return static_cast<std::int64_t>(pages_.size()); }
  // Pages of no user.
  [[nodiscard]] std::int64_t free() const noexcept { return static_cast<std::int64_t>(idle_.size()); }

  // A page for one user, its content undefined; none if all are in use.
  [[nodiscard]] std::optional<std::int32_t> take();
  // Pages that hold the beginning of `tokens`, whole pages alone, each with one user more.
  [[nodiscard]] std::vector<std::int32_t> take_prefix(std::span<const std::int32_t> tokens, std::int64_t adapter = -1);
  // The page holds `tokens`, a whole page of them, after those of `before` (none: the beginning); both have users.
  // Where another page is known by the same, nothing is changed.
  void publish(std::int32_t page, std::optional<std::int32_t> before, std::span<const std::int32_t> tokens,
               std::int64_t adapter = -1);
  // One user less for each. Later pages of a sequence are reused before earlier ones.
  void release(std::span<const std::int32_t> pages);

 private:
  // Content of the page before, 0 at the beginning, adapter and tokens.
  struct Content {
    std::uint64_t before = 0;
    std::int64_t adapter = -1;
    std::vector<std::int32_t> tokens;
    auto operator<=>(const Content&) const = default;
  };
  struct Page {
    std::int64_t users = 0;
    std::uint64_t content = 0;  // 0: not known
    std::map<Content, std::int32_t>::iterator known{};
    std::list<std::int32_t>::iterator idle{};  // without users
  };

  void forget(Page& page);
  void use(std::int32_t page);

  std::int64_t page_;
  std::vector<Page> pages_;
  std::list<std::int32_t> idle_;  // next one first
  std::map<Content, std::int32_t> known_;
  std::uint64_t contents_ = 0;
};

}  // namespace quench
