#pragma once
// Page frame: one HTML file without scripts or external references.

#include <filesystem>
#include <string>
#include <vector>

namespace quench {

struct PageSection {
  std::string id;     // letters
  std::string title;  // plain text
  std::string body;   // HTML
};

struct PageHead {
  std::string title;  // plain text, like `lead`
  std::string lead;
  std::string facts{};               // HTML
  std::string top{};                 // HTML before the sections
  std::vector<std::string> notes{};  // unreadable inputs, plain text
};

// Without empty sections.
[[nodiscard]] std::string render_page(const PageHead& head, std::vector<PageSection> sections);

[[nodiscard]] bool is_report(const std::filesystem::path& file);

}  // namespace quench
