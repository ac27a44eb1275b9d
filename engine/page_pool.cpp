#include "engine/page_pool.h"

#include <ranges>

#include "core/system/check.h"

namespace quench {

PagePool::PagePool(std::int64_t count, std::int64_t page) : page_(page), pages_(static_cast<std::size_t>(count)) {
  for (std::int32_t i = 0; i < count; ++i) pages_[static_cast<std::size_t>(i)].idle = idle_.insert(idle_.end(), i);
}

void PagePool::forget(Page& page) {
  if (page.content == 0) return;
  known_.erase(page.known);
  page.content = 0;
}

void PagePool::use(std::int32_t index) {
  Page& page = pages_[static_cast<std::size_t>(index)];
  if (page.users++ == 0) idle_.erase(page.idle);
}

std::optional<std::int32_t> PagePool::take() {
  if (idle_.empty()) return std::nullopt;
  const std::int32_t index = idle_.front();
  use(index);
  forget(pages_[static_cast<std::size_t>(index)]);
  return index;
}

std::vector<std::int32_t> PagePool::take_prefix(std::span<const std::int32_t> tokens, std::int64_t adapter) {
  std::vector<std::int32_t> found;
  Content content{.adapter = adapter, .tokens = {}};
  while (static_cast<std::int64_t>(tokens.size()) >= page_) {
    content.tokens.assign(tokens.begin(), tokens.begin() + page_);
    const auto known = known_.find(content);
    if (known == known_.end()) break;
    use(known->second);
    found.push_back(known->second);
    content.before = pages_[static_cast<std::size_t>(known->second)].content;
    tokens = tokens.subspan(static_cast<std::size_t>(page_));
  }
  return found;
}

void PagePool::publish(std::int32_t index, std::optional<std::int32_t> before, std::span<const std::int32_t> tokens,
                       std::int64_t adapter) {
  QUENCH_CHECK(static_cast<std::int64_t>(tokens.size()) == page_, "PagePool: {} tokens of a page of {}", tokens.size(),
               page_);
  Page& page = pages_[static_cast<std::size_t>(index)];
  Content content{.before = before ? pages_[static_cast<std::size_t>(*before)].content : 0,
                  .adapter = adapter,
                  .tokens = {tokens.begin(), tokens.end()}};
  if (page.content != 0 || (before && content.before == 0)) return;
  const auto [known, added] = known_.try_emplace(std::move(content), index);
  if (!added) return;
  page.content = ++contents_;
  page.known = known;
}

void PagePool::release(std::span<const std::int32_t> pages) {
  for (const std::int32_t index : pages | std::views::reverse) {
    Page& page = pages_[static_cast<std::size_t>(index)];
    if (--page.users > 0) continue;
    // Pages of unknown content first.
    page.idle = idle_.insert(page.content == 0 ? idle_.begin() : idle_.end(), index);
  }
}

}  // namespace quench
